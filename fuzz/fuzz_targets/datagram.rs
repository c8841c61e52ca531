#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tenure::fuzz::hold("datagram", bytes));
