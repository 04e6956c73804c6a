//! Links as extension modules are linked: on macOS the symbols of Python stay undefined.

fn main() {
    pyo3_build_config::add_extension_module_link_args();
}
