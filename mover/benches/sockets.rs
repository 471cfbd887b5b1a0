//! One TCP stream over loopback: blocking calls against a ring, at several request sizes. The table
//! behind `--engine auto` (runs/). `cargo bench -p datapump-mover --bench sockets`.

#![allow(unsafe_code, reason = "the ring takes what lives until it is done")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::thread;

use analysis::statistics::Spread;
use base::units::{Nanos, Rate};
use io_uring::{IoUring, opcode, types};
use mover::io::{clock, system, tcp};

const BYTES: u64 = 1 << 30;
const ROUNDS: usize = 5;

#[derive(Clone, Copy, Debug)]
enum Variant {
    Blocking,
    Ring,
}

fn main() {
    println!("| request | send | receive | MB/s, median | CPU ns/B, median of both ends |");
    println!("|---|---|---|---|---|");
    let sizes = [64 << 10, 256 << 10, 512 << 10, 1 << 20];
    let variants = [Variant::Blocking, Variant::Ring];
    let cells: Vec<(usize, Variant, Variant)> = sizes
        .into_iter()
        .flat_map(|size| variants.into_iter().flat_map(move |s| variants.map(|r| (size, s, r))))
        .collect();
    // Interleaved: a machine that slows down slows all of them.
    let mut seen = vec![Vec::new(); cells.len()];
    for _ in 0..ROUNDS {
        for (runs, (size, send, receive)) in seen.iter_mut().zip(&cells) {
            runs.push(run(*size, *send, *receive));
        }
    }
    for (runs, (size, send, receive)) in seen.iter().zip(&cells) {
        let middle = |of: fn(&(f64, f64)) -> f64| {
            Spread::of(runs.iter().map(of)).map_or(f64::NAN, |spread| spread.median)
        };
        let (rate, cost) = (middle(|run| run.0), middle(|run| run.1));
        println!("| {} KiB | {send:?} | {receive:?} | {:.0} | {cost:.3} |", size >> 10, rate / 1e6);
    }
}

/// Bytes a second, and CPU nanoseconds a byte of this process, which has both ends.
fn run(size: usize, send: Variant, receive: Variant) -> (f64, f64) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let sender = TcpStream::connect(address).expect("a connection");
    let (receiver, _) = listener.accept().expect("a connection");
    for socket in [&sender, &receiver] {
        tcp::tune(socket, &tcp::Tuning::default()).expect("a tuned socket");
    }
    let before = (clock::now(), cpu());
    let sending = thread::spawn(move || match send {
        Variant::Blocking => send_blocking(sender, size),
        Variant::Ring => on_ring(&sender, size, Direction::Out),
    });
    match receive {
        Variant::Blocking => receive_blocking(receiver, size),
        Variant::Ring => on_ring(&receiver, size, Direction::In),
    }
    sending.join().expect("a sender that ends");
    let time = clock::now().since(before.0);
    let spent = cpu() - before.1;
    (Rate::of(BYTES, time).bytes_per_second, spent.0 as f64 / BYTES as f64)
}

fn cpu() -> Nanos {
    let usage = system::usage();
    usage.user + usage.system
}

fn send_blocking(mut socket: TcpStream, size: usize) {
    let buffer = vec![1; size];
    for _ in 0..BYTES / size as u64 {
        socket.write_all(&buffer).expect("sent");
    }
}

fn receive_blocking(mut socket: TcpStream, size: usize) {
    let mut buffer = vec![0; size];
    for _ in 0..BYTES / size as u64 {
        socket.read_exact(&mut buffer).expect("received");
    }
}

#[derive(Clone, Copy, Debug)]
enum Direction {
    Out,
    In,
}

/// One request in flight, all of it asked for at once.
fn on_ring(socket: &TcpStream, size: usize, direction: Direction) {
    let mut ring: IoUring = IoUring::builder().setup_coop_taskrun().build(8).expect("a ring");
    let mut buffer = vec![1u8; size];
    let fd = types::Fd(socket.as_raw_fd());
    for _ in 0..BYTES / size as u64 {
        let mut done = 0;
        while done < size {
            let (at, left) = (buffer[done..].as_mut_ptr(), (size - done) as u32);
            let entry = match direction {
                Direction::Out => opcode::Send::new(fd, at, left).flags(libc::MSG_WAITALL).build(),
                Direction::In => opcode::Recv::new(fd, at, left).flags(libc::MSG_WAITALL).build(),
            };
            // SAFETY: the buffer outlives the loop; the completion is awaited right here.
            unsafe { ring.submission().push(&entry) }.expect("room for one entry");
            ring.submit_and_wait(1).expect("a completion");
            let count = ring.completion().next().expect("one completion").result();
            assert!(count > 0, "a connection that ended: {count}");
            done += count as usize;
        }
    }
}
