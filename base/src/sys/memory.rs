//! What a process gives back to the kernel that waits from now on.

use super::process;

/// How far calls below the one that waits have used the stack, at most, in bytes. Those of a launch go some 140 KiB deep.
const DEPTH: usize = 256 << 10;

/// Gives back memory that the allocator keeps for later, pages of the program and its libraries, which come again from the page
/// cache when they are needed, and the pages of the stack that deeper calls have left.
///
/// The process has one thread when it calls this, and again when this returns.
pub fn release() {
    #[cfg(target_env = "gnu")]
    cache::empty();
    process::release_memory();
    process::release_text();
    release_stack();
}

/// What glibc keeps for each thread: some pieces of each small size, which lie anywhere and hold the pages around them.
/// `malloc_trim(3)` leaves them, no program can forbid it from inside, and it ends with the thread alone.
#[cfg(target_env = "gnu")]
mod cache {
    use std::ptr;
    use std::thread;

    /// The largest size, in bytes.
    const LARGEST: usize = 1032;
    /// Sizes differ by so many bytes, and the least is smaller than two of them.
    const STEP: usize = 16;
    /// So many are kept of each size (`glibc.malloc.tcache_count`).
    const KEPT: usize = 7;
    /// The stack of a thread that does nothing but give memory back, in bytes.
    const STACK: usize = 64 << 10;

    /// Pieces of memory, which are given back with this.
    struct Pieces(Vec<usize>);

    impl Drop for Pieces {
        fn drop(&mut self) {
            for &piece in &self.0 {
                // SAFETY: `malloc(3)` has given it, and nobody else has it.
                unsafe { libc::free(ptr::with_exposed_provenance_mut(piece)) };
            }
        }
    }

    /// Takes everything out of the calling thread's cache, for a thread that ends.
    pub(super) fn empty() {
        // SAFETY: it sets a number. The thread is to have no heap of its own.
        unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
        let sizes = (STEP + STEP / 2..=LARGEST).step_by(STEP);
        let mut pieces = Pieces(Vec::with_capacity(sizes.clone().count() * KEPT));
        for size in sizes {
            for _ in 0..KEPT {
                // SAFETY: any size may be asked for. What it answers is kept as a number; none is 0.
                pieces
                    .0
                    .push(unsafe { libc::malloc(size) }.expose_provenance());
            }
        }
        let ends = thread::Builder::new().stack_size(STACK);
        // Where no thread can be had this one gives them back, and keeps some.
        if let Ok(thread) = ends.spawn(move || drop(pieces)) {
            let _ = thread.join();
        }
    }
}

/// Gives back the pages of the stack that deeper calls have left (`madvise(2)`).
#[inline(never)]
fn release_stack() {
    // SAFETY: both only ask.
    let (page, thread) = unsafe { (libc::sysconf(libc::_SC_PAGESIZE), libc::gettid()) };
    let page = usize::try_from(page).unwrap_or(0);
    // Below the first thread's stack the kernel keeps a gap; below another's anything may be.
    if thread != nix::unistd::getpid().as_raw() || !page.is_power_of_two() || page > DEPTH {
        return;
    }
    let here = 0u8;
    let end = (std::ptr::from_ref(&here).addr() & !(page - 1)) - page;
    // SAFETY: this function is not inlined, so that `here` is in the innermost frame but that of the call itself, for which more than
    // a page is left. What lies further down is of calls that are over.
    unsafe {
        libc::madvise(
            std::ptr::without_provenance_mut(end - DEPTH),
            DEPTH,
            libc::MADV_DONTNEED,
        );
    }
}
