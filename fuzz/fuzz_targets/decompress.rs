#![no_main]

#[path = "../targets.rs"]
#[allow(dead_code, reason = "each target is a program of its own")]
mod targets;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| targets::decompress(bytes));
