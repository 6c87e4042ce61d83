//! Records of what has not happened, and addresses that change.

use super::*;

/// The program of the machines that `tests/ebpf` boots; none where there is no compiler.
fn probe(place: &BpfDirectory) -> Option<PathBuf> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/ebpf/probe");
    let made = place.directory.path().join("probe");
    let mut command = Command::new("gcc");
    command.args(["-std=gnu11", "-static", "-o"]).arg(&made);
    for entry in fs::read_dir(sources).expect("the sources") {
        let source = entry.expect("an entry").path();
        if source.extension().is_some_and(|extension| extension == "c") {
            command.arg(source);
        }
    }
    match command.status() {
        Ok(status) if status.success() => Some(made),
        _ => {
            println!("not checked: tracer: forged records: there is no gcc here");
            None
        }
    }
}

/// Who decided, what came of it, with which flags, and what it was about: `name`, an address or numbers.
#[derive(Debug)]
struct Deed {
    by: By,
    result: i32,
    flags: u16,
    name: String,
}

/// What the processes of that name did.
fn deeds(events: &[Vec<u8>], comm: &str) -> Vec<Deed> {
    let text = |bytes: &[u8], flags| String::from_utf8_lossy(&turned(bytes, flags)).into_owned();
    let mut deeds = Vec::new();
    for bytes in events {
        let event = raw::parse(bytes).expect("an event");
        let head = event.head;
        let name = match event.about {
            About::Open { path, .. } => format!("open {}", text(path, head.flags)),
            About::Exec {
                path, arguments, ..
            } => {
                let arguments = String::from_utf8_lossy(arguments).replace('\0', " ");
                format!("exec {} {arguments}", text(path, head.flags))
            }
            About::Address {
                family, address, ..
            } => match family {
                2 => format!(
                    "inet {}.{}.{}.{}:{}",
                    address[4],
                    address[5],
                    address[6],
                    address[7],
                    u16::from_be_bytes([address[2], address[3]])
                ),
                1 => format!("unix {}", text(&address[2..], 0)),
                other => format!("family {other}"),
            },
            About::Operation {
                what,
                numbers,
                path,
                ..
            } => {
                let what = OPERATIONS[usize::try_from(what).expect("a number")];
                format!("{what} {} {}", numbers[0], text(path, head.flags))
            }
            About::Life => continue,
        };
        if head.command() == comm.as_bytes() {
            deeds.push(Deed {
                by: head.by,
                result: head.result,
                flags: head.flags,
                name,
            });
        }
    }
    deeds
}

/// What a group of actions of the probe leaves in the ring.
fn acted(place: &BpfDirectory, program: &Path, group: &str) -> Vec<Vec<u8>> {
    // The actions listen on ports and at paths of their own: not two of them at a time.
    static ONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _one = ONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut probes = Probes::open(&place.settings()).expect("probes");
    let shell = Shell::new(&format!("{} act {group} >&2", program.display()));
    mark(&mut probes, 5, &shell);
    shell.end();
    let mut events = Vec::new();
    probes.drain(usize::MAX, &mut |bytes| events.push(bytes.to_vec()));
    assert_eq!(probes.counts(5).expect("counts").lost, 0);
    probes.unpin().expect("unpinned");
    events
}

#[test]
fn what_something_else_than_the_kernel_answers_has_not_run() {
    let Some(place) = BpfDirectory::new("forged records") else {
        return;
    };
    let Some(program) = probe(&place) else { return };
    fs::create_dir_all("/srv/t/inner").expect("a directory");
    let events = acted(&place, &program, "forged");
    let rows = [
        ("fg-answered", "setuid 0 "),
        ("fg-answered", "mount 0 /srv"),
        ("fg-answered", "ptrace 1 "),
        ("fg-answered", "module_load 2 "),
        ("fg-answered", "inet 203.0.113.66:443"),
        ("fg-answered", "exec /usr/bin/forged "),
        ("fg-answered", "unlink 0 /forged-removal"),
        ("fg-answered", "open /etc/forged"),
        ("fg-first", "setuid 0 "),
        ("fg-emulated", "setuid 0 "),
        ("fg-emulated", "open /etc/emulated"),
    ];
    for (comm, name) in rows {
        let deeds = deeds(&events, comm);
        let found = deeds.iter().find(|deed| deed.name == name);
        let deed = found.unwrap_or_else(|| panic!("{comm}: no {name:?} in {deeds:#?}"));
        assert_eq!((deed.by, deed.result), (By::Seccomp, 0), "{deed:?}");
    }
}

#[test]
fn an_address_is_the_kernels_or_that_of_the_calls_begin() {
    let Some(place) = BpfDirectory::new("changed addresses") else {
        return;
    };
    let Some(program) = probe(&place) else { return };
    fs::create_dir_all("/srv/t/inner").expect("a directory");
    let events = acted(&place, &program, "forged");
    for (comm, name) in [
        ("fg-changed", "inet 127.0.0.1:20030"),
        ("fg-unmapped", "inet 127.0.0.1:20031"),
        ("fg-link", "unix /srv/t/fg-behind"),
    ] {
        let deeds = deeds(&events, comm);
        let addresses: Vec<&Deed> = deeds
            .iter()
            .filter(|deed| deed.name.starts_with("inet") || deed.name.starts_with("unix"))
            .collect();
        let found = addresses.iter().find(|deed| deed.name == name);
        let deed = found.unwrap_or_else(|| panic!("{comm}: no {name:?} in {deeds:#?}"));
        assert_eq!(
            (deed.by, deed.result, deed.flags),
            (By::Nobody, 0, 0),
            "{deed:?}"
        );
        // What was asked for by another name is there, too, as the caller's word.
        let asked = addresses.iter().filter(|deed| deed.name != name);
        for other in asked.clone() {
            assert_eq!(other.name, "unix /srv/t/fg-link", "{other:?}");
            assert_eq!(other.flags, raw::flags::FROM_USER, "{other:?}");
        }
        assert_eq!(asked.count(), usize::from(comm == "fg-link"), "{deeds:#?}");
    }
}
