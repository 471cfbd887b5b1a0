//! Memory of a virtual machine that costs the same each time it is used.
//!
//! The balloon driver of a guest may give freed pages back to the host ("free page reporting"), and
//! the first use of a page takes it from there again, at an eighth of the speed of a page that is
//! here. Which of the two a copy into memory gets is chance.

use std::fs;
use std::ops::Range;

use analysis::accounting::moment::{
    ORDER_GIVEN_BACK, read_available_bytes, read_orders_given_back,
};

/// While it lives, freed pages stay here, and each has been used once.
pub(super) struct Kept {
    /// What the kernel's parameter was, if it had to be changed.
    order: Option<u32>,
}

impl Kept {
    /// Leaves the machine as it is where it gives nothing back, or does not let itself be changed;
    /// [`note`] says which.
    pub(super) fn begin() -> Kept {
        let Some(orders) = orders_given_back() else { return Kept { order: None } };
        if fs::write(ORDER_GIVEN_BACK, orders.end.to_string()).is_err() {
            return Kept { order: None };
        }
        use_all();
        Kept { order: Some(orders.start) }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if let Some(order) = self.order {
            let _ = fs::write(ORDER_GIVEN_BACK, order.to_string());
        }
    }
}

/// For the description of a machine.
pub(super) fn note() -> &'static str {
    match orders_given_back() {
        None => "freed pages are kept",
        Some(_) => {
            "freed pages are given back to the host, from which their next use takes them again: \
             rates into memory vary by that"
        }
    }
}

fn orders_given_back() -> Option<Range<u32>> {
    read_orders_given_back(&text(ORDER_GIVEN_BACK), &text("/proc/buddyinfo"))
}

fn text(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// Takes all free memory but a reserve, writes to it, and frees it.
fn use_all() {
    let mut taken: Vec<Vec<u8>> = Vec::new();
    println!("\n== memory: each free page is used once");
    while read_available_bytes(&text("/proc/meminfo")) > RESERVE_BYTES + BLOCK_BYTES as u64 {
        taken.push(vec![1; BLOCK_BYTES]);
    }
    println!("== memory: {} MiB", (taken.len() * BLOCK_BYTES) >> 20);
}

const BLOCK_BYTES: usize = 256 << 20;
const RESERVE_BYTES: u64 = 1 << 30;
