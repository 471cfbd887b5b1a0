//! The I/O engine: the only unsafe code, and the only system calls on data.

pub mod accounts;
pub mod attributes;
pub mod backend;
pub mod beneath;
mod blocking;
#[expect(unsafe_code, reason = "aligned memory that the kernel writes into")]
pub mod buffer;
pub mod call;
pub mod clock;
pub mod disk;
pub mod echo;
pub mod engine;
pub mod holes;
pub mod medium;
mod page_cache;
pub mod reach;
pub mod request;
pub mod sampler;
pub mod sim;
pub mod store;
#[expect(unsafe_code, reason = "TCP_INFO, CPU clocks and scheduling have no safe binding")]
pub mod system;
pub mod tcp;
pub mod threads;
mod untold;
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "io_uring rings and fixed buffers")]
pub mod uring;
pub mod volume;
pub mod window;
