//! Memory for large arrays.

/// An array of zeros. A large one is asked for in large pages, since its elements are written in any order, and each page of the usual
/// size costs more than the elements that are written to it.
pub fn zeros(length: usize) -> Vec<f64> {
    let mut values: Vec<f64> = Vec::with_capacity(length);
    advise_huge_pages(&values);
    values.resize(length, 0.0);
    values
}

/// The size of a large page, in bytes.
#[cfg(target_os = "linux")]
const HUGE_PAGE: usize = 2 << 20;

#[cfg(target_os = "linux")]
fn advise_huge_pages(values: &Vec<f64>) {
    let start = values.as_ptr().addr();
    let end = start + values.capacity() * size_of::<f64>();
    let [first, last] = [start.next_multiple_of(HUGE_PAGE), end / HUGE_PAGE * HUGE_PAGE];
    if first < last {
        let pages = values.as_ptr().cast_mut().wrapping_byte_add(first - start).cast();
        // SAFETY: the pages are inside of the memory of the vector. The advice changes nothing that can be read from them, and is no
        // more than a wish: that it is not heard is no error.
        unsafe { libc::madvise(pages, last - first, libc::MADV_HUGEPAGE) };
    }
}

#[cfg(not(target_os = "linux"))]
fn advise_huge_pages(_values: &Vec<f64>) {}
