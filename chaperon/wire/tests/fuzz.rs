//! Whatever arrives, the readers of frames and capsules answer an error or a message: they neither
//! panic nor take memory for what is only announced.

#![allow(clippy::unwrap_used)] // a test: the panic is the failure

use std::io::Read;

use agent_sandbox_wire::capsule::{
    Capsule, CapsuleError, Layer, LayerKind, Options, PolicySnapshot, Program, Streams,
    TaskCommand, VERSION,
};
use agent_sandbox_wire::frame::{self, FrameError, LONGEST};
use agent_sandbox_wire::message::{Call, End, FromShim, How, Source, Stream, ToShim};
use agent_sandbox_wire::{order::Order, step};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use proptest::collection::vec;
use proptest::prelude::*;

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..200)
}

fn list() -> impl Strategy<Value = Vec<Vec<u8>>> {
    vec(bytes(), 0..6)
}

fn end() -> impl Strategy<Value = End> {
    prop_oneof![
        any::<i32>().prop_map(End::Code),
        any::<i32>().prop_map(End::Signal)
    ]
}

fn call() -> impl Strategy<Value = Call> {
    (bytes(), list(), bytes(), list(), any::<u32>()).prop_map(
        |(command, arguments, cwd, environment, umask)| Call {
            command,
            arguments,
            cwd,
            environment,
            umask,
        },
    )
}

fn from_shim() -> impl Strategy<Value = FromShim> {
    prop_oneof![
        call().prop_map(FromShim::Call),
        any::<i32>().prop_map(FromShim::Signal),
        bytes().prop_map(FromShim::Content),
        Just(FromShim::ContentEnds),
        Just(FromShim::Opened),
        any::<i32>().prop_map(FromShim::Failed),
        end().prop_map(FromShim::RunEnded),
    ]
}

fn to_shim() -> impl Strategy<Value = ToShim> {
    let source = prop_oneof![Just(Source::Input), bytes().prop_map(Source::File)];
    let how = prop_oneof![Just(How::Read), Just(How::Truncate), Just(How::Append)];
    let stream = prop_oneof![Just(Stream::Output), Just(Stream::Error)];
    prop_oneof![
        (source, any::<u64>()).prop_map(|(source, most)| ToShim::Fetch { source, most }),
        (bytes(), how).prop_map(|(path, how)| ToShim::Open { path, how }),
        (stream, bytes()).prop_map(|(stream, bytes)| ToShim::Output { stream, bytes }),
        (list(), list()).prop_map(|(argv, environment)| ToShim::Run { argv, environment }),
        Just(ToShim::Stopped),
        end().prop_map(ToShim::End),
        any::<i32>().prop_map(ToShim::Signal),
    ]
}

fn capsule() -> impl Strategy<Value = Capsule> {
    let per_task = (vec((any::<u32>(), any::<u32>()), 0..3), list())
        .prop_map(|(tasks, argv)| TaskCommand { tasks, argv });
    let program = prop_oneof![
        (vec(any::<u8>(), 0..3000), list())
            .prop_map(|(script, arguments)| Program::Script { script, arguments }),
        list().prop_map(Program::Command),
        vec(per_task, 0..3).prop_map(Program::PerTask),
    ];
    let shared =
        (".*", bytes(), ".*", list(), ".*").prop_map(|(session, project, text, write, home)| {
            PolicySnapshot {
                variables: write.clone(),
                told: vec![home.clone()],
                traced: false,
                allocation: Vec::new(),
                placeholders: vec![(home.clone(), text.clone())],
                session,
                project,
                layers: vec![Layer {
                    kind: LayerKind::Project,
                    file: text.clone(),
                    text,
                }],
                options: Options {
                    write,
                    home: Some(home),
                    ..Options::default()
                },
            }
        });
    let streams = proptest::option::of(bytes()).prop_map(|output| Streams {
        output,
        append: true,
        ..Streams::default()
    });
    (
        shared,
        list(),
        list(),
        (bytes(), bytes()),
        any::<u32>(),
        streams,
        program,
    )
        .prop_map(
            |(snapshot, base_environment, environment, places, umask, streams, program)| Capsule {
                snapshot,
                base_environment,
                environment,
                cwd: places.0,
                submit_directory: places.1,
                umask,
                streams,
                program,
            },
        )
}

fn with_script(script: Vec<u8>) -> Capsule {
    Capsule {
        snapshot: PolicySnapshot {
            session: String::new(),
            project: Vec::new(),
            layers: Vec::new(),
            options: Options::default(),
            variables: Vec::new(),
            told: Vec::new(),
            traced: false,
            allocation: Vec::new(),
            placeholders: Vec::new(),
        },
        base_environment: Vec::new(),
        environment: Vec::new(),
        cwd: Vec::new(),
        submit_directory: Vec::new(),
        umask: 0,
        streams: Streams::default(),
        program: Program::Script {
            script,
            arguments: Vec::new(),
        },
    }
}

/// Reads it with every reader there is.
fn read_all_ways(text: &[u8]) {
    let _ = frame::decode::<FromShim>(text);
    let _ = frame::decode::<ToShim>(text);
    let _ = frame::decode::<Order>(text);
    let _ = frame::receive::<FromShim>(&mut &*text);
    let _ = frame::receive::<ToShim>(&mut &*text);
    let _ = Capsule::from_batch_script(text);
    let _ = step::capsule(|name| Some(if name == step::VARIABLE { b"1" } else { text }.to_vec()));
    let _ = step::capsule(|_| Some(text.to_vec()));
    if let Some(header) = text.first_chunk() {
        let _ = frame::body_length(*header);
        let _ = frame::check_preface(*header);
    }
}

/// A line that no parser of a batch system takes for anything, after the first.
fn is_inert(script: &[u8]) -> bool {
    let inert = |line: &[u8]| {
        !["#SBATCH", "#PBS", "#BSUB"]
            .iter()
            .any(|mark| line.starts_with(mark.as_bytes()))
    };
    script.split(|&byte| byte == b'\n').all(inert)
        && !script.contains(&b'\r')
        && !script.contains(&0)
        && script.is_ascii()
}

proptest! {
    #[test]
    fn messages_come_back(ours in from_shim(), theirs in to_shim()) {
        let frame = frame::encode(&ours).unwrap();
        prop_assert_eq!(frame::receive::<FromShim>(&mut &*frame).unwrap(), ours);
        let frame = frame::encode(&theirs).unwrap();
        prop_assert_eq!(frame::receive::<ToShim>(&mut &*frame).unwrap(), theirs);
    }

    #[test]
    fn anything_is_read(text in vec(any::<u8>(), 0..600)) {
        read_all_ways(&text);
    }

    #[test]
    fn frames_that_are_cut_are_errors(message in from_shim(), cut in any::<prop::sample::Index>()) {
        let frame = frame::encode(&message).unwrap();
        let mut cut = &frame[..cut.index(frame.len())];
        prop_assert!(frame::receive::<FromShim>(&mut cut).is_err());
    }

    #[test]
    fn frames_that_are_changed_are_read(
        message in from_shim(), at in any::<prop::sample::Index>(), with in any::<u8>()
    ) {
        let mut frame = frame::encode(&message).unwrap();
        let at = at.index(frame.len());
        frame[at] = with;
        read_all_ways(&frame);
        read_all_ways(&frame[4..]);
    }

    #[test]
    fn bodies_with_a_rest_are_refused(message in from_shim(), rest in vec(any::<u8>(), 1..9)) {
        let mut body = frame::encode(&message).unwrap().split_off(4);
        body.extend(rest);
        let decoded = frame::decode::<FromShim>(&body);
        prop_assert!(matches!(decoded, Err(FrameError::Malformed)));
    }

    #[test]
    fn capsules_come_back_and_are_inert(capsule in capsule()) {
        let script = capsule.batch_script(b"/opt/bin/agent-sandbox").unwrap();
        prop_assert!(script.starts_with(b"#!/opt/bin/agent-sandbox job\n"));
        prop_assert!(is_inert(&script));
        prop_assert_eq!(&Capsule::from_batch_script(&script).unwrap(), &capsule);
        let variables = step::variables(&capsule).unwrap();
        for (name, value) in &variables {
            prop_assert!(step::is_part(name.as_bytes()));
            prop_assert!(value.bytes().all(|byte| byte.is_ascii_graphic()));
        }
        let look_up = |wanted: &str| {
            let found = variables.iter().find(|(name, _)| name == wanted)?;
            Some(found.1.clone().into_bytes())
        };
        prop_assert_eq!(step::capsule(look_up).unwrap(), capsule);
    }

    #[test]
    fn capsules_that_are_cut_are_errors(capsule in capsule(), cut in any::<prop::sample::Index>()) {
        let script = capsule.batch_script(b"/opt/bin/agent-sandbox").unwrap();
        // The last byte ends a line, and is not missed.
        let cut = &script[..cut.index(script.len() - 1)];
        prop_assert!(Capsule::from_batch_script(cut).is_err());
    }

    #[test]
    fn capsules_that_are_changed_are_read(
        capsule in capsule(), at in any::<prop::sample::Index>(), with in any::<u8>()
    ) {
        let mut script = capsule.batch_script(b"/opt/bin/agent-sandbox").unwrap();
        let at = at.index(script.len());
        script[at] = with;
        read_all_ways(&script);
    }

    #[test]
    fn interpreters_stay_on_their_line(interpreter in bytes()) {
        if let Ok(script) = with_script(Vec::new()).batch_script(&interpreter) {
            let first = script.split(|&byte| byte == b'\n').next().unwrap();
            prop_assert_eq!(first, [b"#!", interpreter.as_slice(), b" job"].concat());
            prop_assert!(!first.contains(&b'\r'));
        }
    }
}

#[test]
fn hostile_interpreters_are_refused() {
    let long = [b"/".as_slice(), &[b'x'; 300]].concat();
    let hostile: [&[u8]; 10] = [
        b"",
        b"agent-sandbox",
        b"/bin/sh -c",
        b"/a\n#SBATCH --uid=0",
        b"/a\r",
        b"/a\0",
        b"/a\t",
        b"/a\x0b",
        b" /a",
        &long,
    ];
    for interpreter in hostile {
        let script = with_script(Vec::new()).batch_script(interpreter);
        let shown = String::from_utf8_lossy(interpreter);
        assert_eq!(script, Err(CapsuleError::Interpreter), "{shown:?}");
    }
}

#[test]
fn scripts_of_any_size_are_inert() {
    let text = b"#SBATCH --uid=0\r\n#PBS -u root\n#BSUB -x\n\0";
    // Small ones stand as they are, large ones are compressed.
    for times in [1, 1000, 100_000] {
        let capsule = with_script(text.repeat(times));
        let script = capsule.batch_script(b"/opt/bin/agent-sandbox").unwrap();
        assert!(is_inert(&script));
        assert_eq!(Capsule::from_batch_script(&script), Ok(capsule));
    }
}

/// Content that unpacks to this many bytes.
fn bomb(unpacked: usize) -> Vec<u8> {
    let mut bytes = vec![VERSION, 1];
    bytes.extend(miniz_oxide::deflate::compress_to_vec(&vec![0; unpacked], 9));
    let body = STANDARD.encode(bytes);
    let length = body.len();
    format!("#!/x job\n# agent-sandbox capsule {VERSION} {length}\n{body}\n").into_bytes()
}

#[test]
fn bombs_are_not_unpacked_beyond_the_limit() {
    assert_eq!(
        Capsule::from_batch_script(&bomb(256 << 20)),
        Err(CapsuleError::Damaged)
    );
    assert_eq!(
        Capsule::from_batch_script(&bomb(1 << 20)),
        Err(CapsuleError::Damaged)
    );
}

#[test]
fn lists_are_not_allocated_as_announced() {
    // The discriminant of a call, then lengths near 2^64: each asks for more memory than there is.
    let huge = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
    for before in [&[0_u8][..], &[0, 0], &[2], &[3], &[2, 0]] {
        read_all_ways(&[before, &huge, &huge].concat());
    }
    // Many empty arguments: the memory is bounded by the frame, times the size of an empty list.
    let mut body = vec![0, 0];
    body.extend([0x80, 0x80, 0x80, 0x02]);
    body.resize(LONGEST, 0);
    assert!(frame::decode::<FromShim>(&body).is_err());
}

/// Counts what is asked of it.
struct Endless(u64);

impl Read for Endless {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        into.fill(0xff);
        self.0 += into.len() as u64;
        Ok(into.len())
    }
}

#[test]
fn a_length_that_is_too_long_ends_the_conversation() {
    let mut endless = Endless(0);
    let received = frame::receive::<FromShim>(&mut endless);
    assert!(matches!(received, Err(FrameError::TooLong(_))));
    assert_eq!(endless.0, 4);
    let longest = u32::try_from(LONGEST).unwrap();
    assert_eq!(frame::body_length(longest.to_le_bytes()).unwrap(), LONGEST);
    assert!(frame::body_length((longest + 1).to_le_bytes()).is_err());
    let long = FromShim::Content(vec![0; LONGEST]);
    assert!(matches!(frame::encode(&long), Err(FrameError::TooLong(_))));
}

#[test]
fn other_versions_are_named() {
    let check = |preface| frame::check_preface(preface);
    assert!(check(frame::PREFACE).is_ok());
    assert!(matches!(
        check(*b"asc\x07"),
        Err(FrameError::Version { theirs: 7 })
    ));
    assert!(matches!(
        check(*b"GET "),
        Err(FrameError::Version { theirs: 0 })
    ));
    let later = b"#!/x job\n# agent-sandbox capsule 9 4\nAAAA\n";
    assert_eq!(
        Capsule::from_batch_script(later),
        Err(CapsuleError::Version { theirs: 9 })
    );
    assert_eq!(
        Capsule::from_batch_script(b"#!/bin/sh\n"),
        Err(CapsuleError::NotOne)
    );
    assert_eq!(step::capsule(|_| None), Err(CapsuleError::NotOne));
    let announced = step::capsule(|_| Some(b"99999999999".to_vec()));
    assert_eq!(announced, Err(CapsuleError::Damaged));
}

#[test]
fn parts_of_a_step_fit_into_strings() {
    let mut seed = 1_u32;
    let noise = std::iter::repeat_with(move || {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 24) as u8
    });
    let capsule = with_script(noise.take(1 << 20).collect());
    let variables = step::variables(&capsule).unwrap();
    assert!(variables.len() > 10);
    assert!(
        variables
            .iter()
            .all(|(name, value)| name.len() + value.len() + 2 < 128 << 10)
    );
    assert!(step::variables(&with_script(noise.take(2 << 20).collect())).is_err());
}
