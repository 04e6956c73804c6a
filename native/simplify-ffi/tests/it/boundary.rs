//! The struct itself: versions, ownership, identity.

use std::ffi::c_void;
use std::hash::{BuildHasher, RandomState};
use std::ptr::NonNull;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::common::Result;
use datafusion::logical_expr::simplify::ExprSimplifyResult;
use datafusion::logical_expr::{ReturnFieldArgs, ScalarUDF, lit};
use xql_simplify_ffi::{ABI_VERSION, CAPSULE_NAME, FFI_ScalarUDFSimplify, METHOD_NAME, SimplifyingScalarUDF};

use crate::common::{context, import, import_stock, probe, schema};

fn unchanged() -> Arc<ScalarUDF> {
    probe(|args, _| Ok(ExprSimplifyResult::Original(args)))
}

fn shown(exported: &FFI_ScalarUDFSimplify) -> Result<FFI_ScalarUDFSimplify> {
    // SAFETY: `exported` outlives the call.
    unsafe { FFI_ScalarUDFSimplify::import(NonNull::from(exported).cast::<c_void>()) }
}

#[test]
fn names_are_those_of_the_protocol() {
    assert_eq!(CAPSULE_NAME, c"datafusion_scalar_udf_simplify");
    assert_eq!(METHOD_NAME, "__datafusion_scalar_udf_simplify__");
}

#[test]
fn another_version_is_refused() {
    let mut exported = FFI_ScalarUDFSimplify::from(unchanged());
    assert!(shown(&exported).is_ok());

    exported.abi_version = ABI_VERSION + 1;
    let error = shown(&exported).unwrap_err().to_string();
    assert!(error.contains("version 2 of the ABI"), "{error}");

    exported.abi_version = ABI_VERSION;
    exported.datafusion_major = 53;
    let error = shown(&exported).unwrap_err().to_string();
    assert!(error.contains("DataFusion 53"), "{error}");
}

/// A struct of another version may be shorter than this one: nothing behind the versions is looked at.
#[test]
fn only_the_versions_of_another_version_are_read() {
    let versions: Box<[u64; 2]> = Box::new([u64::MAX, 54]);
    // SAFETY: two versions are all that is looked at.
    let imported = unsafe { FFI_ScalarUDFSimplify::import(NonNull::from(versions.as_ref()).cast()) };
    assert!(imported.is_err());
}

#[test]
fn every_handle_is_released() -> Result<()> {
    let udf = unchanged();
    let exported = FFI_ScalarUDFSimplify::from(Arc::clone(&udf));
    assert_eq!(Arc::strong_count(&udf), 2);
    let imported = shown(&exported)?;
    let again = imported.clone();
    assert_eq!(Arc::strong_count(&udf), 4);
    drop(exported);
    drop(imported);
    assert_eq!(Arc::strong_count(&udf), 2);
    let function = SimplifyingScalarUDF::new(import_stock(&udf), again);
    let copy = function.clone();
    drop(function);
    assert_eq!(Arc::strong_count(&udf), 3);
    drop(copy);
    assert_eq!(Arc::strong_count(&udf), 1);
    Ok(())
}

#[test]
fn a_released_function_does_not_simplify() {
    let udf = unchanged();
    let mut exported = FFI_ScalarUDFSimplify::from(Arc::clone(&udf));
    // SAFETY: `release` comes with the struct and may run again, which then does nothing.
    unsafe { (exported.release)(&mut exported) };
    let function = SimplifyingScalarUDF::new(import_stock(&udf), exported.clone());
    let error = ScalarUDF::from(function).simplify(vec![lit(1)], &context(schema())).unwrap_err().to_string();
    assert!(error.contains("released"), "{error}");
}

#[test]
fn imports_are_equal_only_to_themselves() {
    let udf = unchanged();
    let (one, two) = (import(&udf), import(&udf));
    assert_eq!(one, one.clone());
    assert_ne!(one, two);
    assert_ne!(one, ScalarUDF::new_from_shared_impl(import_stock(&udf)));
    let hasher = RandomState::new();
    assert_eq!(hasher.hash_one(&one), hasher.hash_one(one.clone()));
}

/// A field is named like its expression, which may be a literal with any character.
#[test]
fn a_name_with_nul_has_a_type() -> Result<()> {
    let field = Arc::new(Field::new("concat(s, '\0')", DataType::Float64, true));
    let args = ReturnFieldArgs { arg_fields: &[field], scalar_arguments: &[None] };
    assert_eq!(import(&unchanged()).return_field_from_args(args)?.data_type(), &DataType::Float64);
    Ok(())
}

#[test]
fn everything_else_is_that_of_the_stock_import() -> Result<()> {
    let udf = unchanged();
    let stock = ScalarUDF::new_from_shared_impl(import_stock(&udf));
    let simplifying = import(&udf);
    assert_eq!(simplifying.name(), stock.name());
    assert_eq!(simplifying.aliases(), stock.aliases());
    assert_eq!(simplifying.signature(), stock.signature());
    assert_eq!(simplifying.short_circuits(), stock.short_circuits());
    assert_eq!(simplifying.schema_name(&[lit(1)])?, stock.schema_name(&[lit(1)])?);
    let types = [DataType::Int8];
    assert_eq!(simplifying.coerce_types(&types)?, stock.coerce_types(&types)?);
    Ok(())
}
