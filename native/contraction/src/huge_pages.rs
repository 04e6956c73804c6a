//! Memory of large arrays.

/// Returns an array of zeros. A large one is placed in huge pages: its elements are written in random order, and a fault for each small
/// page costs more than the elements written to it.
pub fn zeros(length: usize) -> Vec<f64> {
    let mut values: Vec<f64> = Vec::with_capacity(length);
    advise_huge_pages(&values);
    values.resize(length, 0.0);
    values
}

/// The size of a huge page in bytes.
#[cfg(target_os = "linux")]
const HUGE_PAGE: usize = 2 << 20;

#[cfg(target_os = "linux")]
fn advise_huge_pages(values: &Vec<f64>) {
    let start = values.as_ptr().addr();
    let end = start + values.capacity() * size_of::<f64>();
    let [first, last] = [start.next_multiple_of(HUGE_PAGE), end / HUGE_PAGE * HUGE_PAGE];
    if first < last {
        let pages = values.as_ptr().cast_mut().wrapping_byte_add(first - start).cast();
        // SAFETY: the pages lie within the memory of the vector. The advice changes nothing that can be read from them, and it is only a
        // hint: its failure is no error.
        unsafe { libc::madvise(pages, last - first, libc::MADV_HUGEPAGE) };
    }
}

#[cfg(not(target_os = "linux"))]
fn advise_huge_pages(_values: &Vec<f64>) {}
