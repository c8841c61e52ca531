//! A short fuzz run on the corpus and on mutations of it. `FUZZ_SECONDS` lengthens it, `FUZZ_SEED` repeats one.

use std::{fs, panic::catch_unwind, path::Path};

use fastrand::Rng;

use super::*;
use crate::{
    clock,
    election::obituary::Replica,
    law::Timing,
    link::{Confirmed, Reason, TermInfo},
    slot::Slot,
};

/// Words that break parsers more often than random bytes do.
const WORDS: [&[u8]; 20] = [
    b"null",
    b"true",
    b"-1",
    b"0",
    b"1",
    b"2147483647",
    b"2147483648",
    b"-9223372036854775808",
    b"18446744073709551615",
    b"1e308",
    b"\"\"",
    b"{}",
    b"[]",
    b"\n",
    b"\0",
    b"\xff",
    b"\xe2\x80\xa8",
    b"\\u0000",
    b"9999-12-31T23:59:59.999999Z",
    b": ",
];

macro_rules! moments {
    ($($target:ident),*) => {
        $(#[test]
        fn $target() {
            hunt(stringify!($target));
        })*

        #[test]
        fn every_target_has_its_moment() {
            assert_eq!(TARGETS.map(|(name, _)| name), [$(stringify!($target)),*]);
        }
    };
}
moments!(annotation, config, credential, datagram, lease, link, notify, reply, watch);

fn hunt(name: &str) {
    let setting = |name| std::env::var(name).ok().map(|value| value.parse::<u64>().unwrap());
    let seed = setting("FUZZ_SEED").unwrap_or_else(|| fastrand::u64(..));
    let until = clock::boot() + Duration::from_secs(setting("FUZZ_SECONDS").unwrap_or(1));
    let mut rng = Rng::with_seed(seed);
    let mut corpus = corpus(name);
    assert!(!corpus.is_empty(), "{name} has no corpus");
    for input in &corpus {
        survives(name, input, seed);
    }
    while clock::boot() < until {
        let mut input = corpus[rng.usize(..corpus.len())].clone();
        for _ in 0..rng.u32(1..6) {
            mutate(&mut input, &corpus, &mut rng);
        }
        survives(name, &input, seed);
        // A mutation of a mutation goes further than a mutation does.
        if corpus.len() < 256 && input.len() < 4096 && rng.u8(..) == 0 {
            corpus.push(input);
        }
    }
}

fn survives(name: &str, input: &[u8], seed: u64) {
    if catch_unwind(|| hold(name, input)).is_err() {
        panic!("{name} fails (FUZZ_SEED={seed}) on \"{}\"", input.escape_ascii());
    }
}

fn mutate(input: &mut Vec<u8>, corpus: &[Vec<u8>], rng: &mut Rng) {
    let at = rng.usize(..=input.len());
    let end = rng.usize(at..=input.len().min(at + 32));
    match rng.u8(..7) {
        0 => drop(input.splice(at..end, [])),
        1 => drop(input.splice(at..end, WORDS[rng.usize(..WORDS.len())].iter().copied())),
        2 => drop(input.splice(at..at, input[at..end].to_vec())),
        3 => drop(input.splice(at..at, [rng.u8(..)])),
        4 => {
            let other = &corpus[rng.usize(..corpus.len())];
            let from = rng.usize(..=other.len());
            let to = rng.usize(from..=other.len().min(from + 128));
            drop(input.splice(at..end, other[from..to].iter().copied()));
        }
        _ => {
            if let Some(byte) = input.get_mut(at) {
                *byte ^= 1 << rng.u8(..8);
            }
        }
    }
}

/// The stored inputs; those that are not text are generated.
fn corpus(name: &str) -> Vec<Vec<u8>> {
    if name == "link" {
        return conversations();
    }
    if name == "datagram" {
        return datagrams();
    }
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(name);
    let mut files: Vec<_> = fs::read_dir(directory).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    files.iter().map(|file| fs::read(file).unwrap()).collect()
}

/// What electors tell a witness: of one Lease, and of the most with the longest names and times.
fn datagrams() -> Vec<Vec<u8>> {
    let told = |leases: Vec<String>, attempt_timeout, renew_period| {
        let (identity, namespace) = (format!("me_{:032x}", 7), "shop".into());
        [&[1], &*encode(&Replica { identity, namespace, leases, attempt_timeout, renew_period }).unwrap()].concat()
    };
    let names = (0..64).map(|slot| format!("{}-slot-{slot}", "x".repeat(200))).collect();
    let (short, long) = (Duration::from_secs(2), Duration::from_secs(2_000_000_000));
    vec![told(vec!["billing".into()], short, short), told(names, long, long)]
}

/// Terms as an elector tells them to init, in each mode, with and without restarts.
fn conversations() -> Vec<Vec<u8>> {
    let timing = Config::default().timing();
    let term = Term(1);
    let hello = ToInit::Hello;
    let extend = |serial, sent| ToInit::Extend { term, serial, confirmed: confirmed(timing, sent) };
    let step_down = ToInit::StepDown { term, request: 1, reason: Reason::StepDown, traceparent: String::new() };
    let releasing = ToInit::Releasing { term, serial: 9 };
    let failed = ToInit::Failed { code: 77, message: "no".into() };
    let whole = [
        &hello,
        &lead(timing),
        &extend(1, BEGIN),
        &ToInit::Heartbeat,
        &step_down,
        &releasing,
        &ToInit::Ended { term, backoff: None },
        &ToInit::Done,
    ]
    .map(Clone::clone);
    let failing = [hello.clone(), lead(timing), extend(1, BEGIN), failed];
    let mut ended = told(0, &[ToInit::Ended { term, backoff: None }]).split_off(1);
    // At once, before the workload is started again.
    ended[1] = 0;
    let crashing = |mode| [&told(mode, &[hello.clone(), lead(timing)]), &CRASH[..], &ended].concat();
    (0..4).flat_map(|mode| [told(mode, &whole), told(mode, &failing), crashing(mode)]).collect()
}

/// No message, after a tenth of a second: the workload ends by itself.
const CRASH: [u8; 2] = [0, 1];

fn told(mode: u8, messages: &[ToInit]) -> Vec<u8> {
    let mut bytes = vec![mode];
    for message in messages {
        let message = encode(message).unwrap();
        bytes.extend([u8::try_from(message.len()).unwrap(), 10]);
        bytes.extend(message);
    }
    bytes
}

fn lead(timing: Timing) -> ToInit {
    let info = TermInfo {
        slot: Slot::default(),
        token: "7".into(),
        uid: "u".into(),
        transitions: 1,
        acquired_at: "2026-01-01T00:00:00.000000Z".into(),
        traceparent: String::new(),
    };
    ToInit::Lead { term: Term(1), info, confirmed: confirmed(timing, BEGIN) }
}

fn confirmed(timing: Timing, sent: Instant) -> Confirmed {
    Confirmed { resource_version: "7".into(), preferred_holder: None, deadlines: timing.deadlines(sent) }
}
