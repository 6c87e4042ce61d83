use proptest::prelude::*;

use super::*;

fn shown(redaction: &Redaction, arguments: &[&str]) -> Vec<String> {
    let bytes: Vec<&[u8]> = arguments.iter().map(|text| text.as_bytes()).collect();
    let left = redaction.arguments(&bytes, false);
    left.into_iter()
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .collect()
}

fn built_in(arguments: &[&str]) -> String {
    shown(&Redaction::default(), arguments).join(" ")
}

fn own(patterns: &[&str]) -> Redaction {
    let patterns: Vec<String> = patterns.iter().map(|text| (*text).to_string()).collect();
    Redaction::new(&patterns).unwrap()
}

#[test]
fn secrets_are_hidden() {
    let rows: &[(&[&str], &str)] = &[
        (&["x", "--token=abc"], "x --token=[redacted]"),
        (&["x", "--token", "abc", "y"], "x --token [redacted] y"),
        (
            &["x", "--password", "a b", "y"],
            "x --password [redacted] y",
        ),
        (&["x", "--password=a b"], "x --password=[redacted]"),
        (
            &["env", "API_KEY=abc", "make"],
            "env API_KEY=[redacted] make",
        ),
        (
            &["env", "PGPASSWORD=a=b", "psql"],
            "env PGPASSWORD=[redacted] psql",
        ),
        (
            &["curl", "-H", "Authorization: Bearer abc def"],
            "curl -H Authorization:[redacted]",
        ),
        (
            &["curl", "-H", "x-api-key:abc"],
            "curl -H x-api-key:[redacted]",
        ),
        (
            &["git", "clone", "https://me:pw@host/x.git"],
            "git clone https://me:[redacted]@host/x.git",
        ),
        (
            &["psql", "postgres://me:p/w@host/db"],
            "psql postgres://me:[redacted]@host/db",
        ),
        (
            &["psql", "postgres://me:p@w@host/db"],
            "psql postgres://me:[redacted]@host/db",
        ),
        (
            &["git", "clone", "https://0123456789abcdefghij@host/x"],
            "git clone https://[redacted]@host/x",
        ),
        (
            &["curl", "https://h/x?a=1&token=abc&b=2"],
            "curl https://h/x?a=1&token=[redacted]&b=2",
        ),
        (&["curl", "-u", "me:pw", "x"], "curl -u me:[redacted] x"),
        (&["curl", "-ume:pw"], "curl -ume:[redacted]"),
        (&["wget", "--user", "me:pw"], "wget --user me:[redacted]"),
        (
            &["/usr/bin/mysql", "-ppw1", "-p"],
            "/usr/bin/mysql -p[redacted] -p",
        ),
        (
            &["sshpass", "-p", "pw", "ssh", "h"],
            "sshpass -p [redacted] ssh h",
        ),
        (
            &["docker", "login", "-p", "pw"],
            "docker login -p [redacted]",
        ),
        (
            &["openssl", "rsa", "-passin", "pass:pw"],
            "openssl rsa -passin [redacted]",
        ),
        // Nobody knows whether the first has a value.
        (
            &["x", "--password", "--token", "abc", "y"],
            "x --password [redacted] [redacted] y",
        ),
        (
            &["sh", "-c", "export A_TOKEN='a b' B=1; x --token abc -v"],
            "sh -c export A_TOKEN=[redacted] B=1; x --token [redacted] -v",
        ),
        (
            &[
                "sh",
                "-c",
                "curl -H 'Authorization: Basic \"q\" abc' -u me:pw https://h/",
            ],
            "sh -c curl -H 'Authorization: [redacted]' -u me:[redacted] https://h/",
        ),
        (
            &["x", "{\"user\": \"u\", \"api_key\": \"abc\", \"n\": 1}"],
            "x {\"user\": \"u\", \"api_key\": [redacted], \"n\": 1}",
        ),
        (
            &["x", "{\\\"password\\\":\\\"a,b\\\",\\\"n\\\":1}"],
            "x {\\\"password\\\":[redacted],\\\"n\\\":1}",
        ),
        (
            &["x", "{\"token\": 123, \"n\": 1}"],
            "x {\"token\": [redacted], \"n\": 1}",
        ),
        (
            &["helm", "--set", "a.token=abc"],
            "helm --set a.token=[redacted]",
        ),
    ];
    for (arguments, left) in rows {
        assert_eq!(built_in(arguments), *left);
    }
}

mod commands;
mod keys;
mod programs;

#[test]
fn other_arguments_stay() {
    for arguments in [
        &["ls", "-la", "/home/a b"][..],
        &[
            "python",
            "train.py",
            "--max-tokens",
            "4096",
            "--tokenizer=x",
        ],
        &[
            "git",
            "commit",
            "--author=A <a@b>",
            "-m",
            "fix: the key of a map",
        ],
        &[
            "git",
            "clone",
            "ssh://git@host:22/x.git",
            "https://host:8080/a@b",
        ],
        &["sort", "--key=2", "-k", "1", "x"],
        &["docker", "login", "--password-stdin", "host"],
        &["docker", "run", "-p", "8080:80", "x"],
        &["srun", "-u", "-n", "4", "./a.out"],
        &["x", "PWD=/tmp", "PATH=/bin", "a=b:c"],
        &["x", "TOKEN=", "--password="],
        &[],
    ] {
        assert_eq!(built_in(arguments), arguments.join(" "));
    }
}

#[test]
fn patterns_of_ones_own_hide() {
    let redaction = own(&["--licence=*", "*hush*", "exact"]);
    assert_eq!(
        shown(
            &redaction,
            &[
                "x",
                "--licence=42",
                "--Licence",
                "43",
                "aHUSHb",
                "exact",
                "exactly"
            ]
        ),
        [
            "x",
            "--licence=[redacted]",
            "--Licence",
            "[redacted]",
            "[redacted]",
            "[redacted]",
            "exactly"
        ]
    );
    // What a pattern keeps can be a secret by itself.
    assert_eq!(
        shown(&own(&["token=abc*"]), &["token=abcd"]),
        ["token=[redacted]"]
    );
}

#[test]
fn patterns_hide_inside_scripts() {
    let redaction = own(&["--mine=*"]);
    for (script, left) in [
        ("tool --mine=abc -v", "tool --mine=[redacted] -v"),
        ("tool --mine abc; x", "tool --mine [redacted]; x"),
        ("tool --mine='a b' -v", "tool --mine=[redacted] -v"),
        ("tool \"--mine=a b\" -v", "tool \"--mine=[redacted]\" -v"),
        (
            "ssh h 'tool --mine=abc -v' x",
            "ssh h 'tool --mine=[redacted] -v' x",
        ),
        ("tool --yours=abc", "tool --yours=abc"),
    ] {
        assert_eq!(shown(&redaction, &["bash", "-c", script])[2], left);
    }
}

#[test]
fn patterns_have_bounds() {
    let many = vec!["x".to_string(); PATTERNS + 1];
    assert_eq!(Redaction::new(&many).err(), Some(BadPattern::Many));
    assert_eq!(
        Redaction::new(&[String::new()]).err(),
        Some(BadPattern::Empty)
    );
}

#[test]
fn work_is_bounded() {
    // 64 patterns against the longest argument, made so that a comparison that goes back takes for ever.
    let redaction = own(&vec![
        "*aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa*aaaaaaaaaaaaaaa=b";
        64
    ]);
    let arguments = [
        "a".repeat(2048),
        "token=\"".repeat(290),
        "-p ".repeat(680),
        ":/".repeat(1020),
        "echo a|sudo -S<<a ".repeat(110),
        "\"$(mysql -p'".repeat(150),
        "\\'\\\\\"".repeat(400),
        "mysql login config ".repeat(100),
        "<<a ".repeat(500),
        "password: |\n a\n".repeat(130),
        "sk-a-".repeat(400),
        "a@b://".repeat(340),
        "a:b://".repeat(340),
        "a['token']='".repeat(170),
        "a[key]=$(".repeat(220),
        "putenv('token','".repeat(120),
        "<token>".repeat(290),
    ];
    let bytes: Vec<&[u8]> = arguments.iter().map(|text| text.as_bytes()).collect();
    // Time of this thread on a processor: others do not count.
    let worked = || nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap();
    let begun = worked();
    for _ in 0..10 {
        assert_eq!(redaction.arguments(&bytes, true).len(), arguments.len());
    }
    // Without optimisation some milliseconds each, on an emulated processor half a minute in all; exponential or cubic work would take
    // minutes on any.
    let seconds = worked().tv_sec() - begun.tv_sec();
    assert!(seconds < 60, "{seconds}");
}

/// What takes the longest is repeated; eight times as much of it takes eight times as long, and not sixty-four times.
#[test]
fn work_grows_as_the_text_does() {
    let redaction = own(&["*a*a*a*a*a*a*a*b"; 64]);
    for part in [
        " -key $(",
        " --key \"a",
        " -key `",
        " --token",
        " --token --token ;",
        " -u",
        " -u -u;",
        "sk-",
        "sk-eyJ-1//0-",
        "\\",
        "\\\"\\'",
        "'\\\\\\\"",
        "\"$(",
        "$(`",
        "a ",
        "a=a ",
        "<<a ",
        "echo a|",
        "[a]=",
        "token:\n",
        "key=\"",
        "://",
        "a:b@://",
        "PRIVATE KEY-----",
        "machine a ",
        "machine password ",
        "putenv('token',",
        "<token>",
        "sqlplus a/",
        "&key=",
        "#",
        "# 'a b' ",
        " --token -$(",
        "mysql -px mysql ",
        "mysql -e ' ",
        "curl -b a=1 ",
        "docker login -p a;",
        "wandb login a=1 ",
        "kinit<<a\n",
        "sudo -S<<<",
        "config a_token_file ",
        "set a-token $(",
        "<token a",
        "token: |\n a\n",
        "[token]=\\\\\"",
        "bearer aaaaaaaaaaaaaaaa ",
        "exp a/",
        "login account machine ",
    ] {
        let time = |bytes: usize| {
            let text = part.repeat(bytes / part.len());
            let begun = crate::trail::Now::of_this_thread();
            let shown = redaction.arguments(&[b"sh", b"-c", text.as_bytes()], false);
            assert_eq!(shown.len(), 3);
            crate::trail::Now::of_this_thread() - begun
        };
        let least = |bytes| (0..3).map(|_| time(bytes)).min().unwrap();
        let (short, long) = (least(2048), least(16384));
        println!("{part:?}: {} us, {} us", short / 1000, long / 1000);
        // What is short takes its time for other reasons.
        assert!(long < 24 * short.max(200_000), "{part:?}: {short} {long}");
    }
}

/// Parts of which hostile arguments are made.
fn argument() -> impl Strategy<Value = String> {
    let part = prop::sample::select(vec![
        "--token",
        "--password",
        "-p",
        "-u",
        "=",
        ":",
        " ",
        "'",
        "\"",
        "\\",
        "`",
        "://",
        "@",
        "/",
        "a",
        "secret",
        "x_key",
        "API_KEY",
        "Authorization",
        "[redacted]",
        "[",
        "]",
        ",",
        ";",
        "&",
        "{",
        "}",
        "\n",
        "ghp_0123456789abcdef0",
        "eyJ",
        "A1b2C3d4E5f6G7h8I9j0K1l2M3n4",
        ".",
        "mysql",
        "curl",
        "machine x ",
        "password",
        "putenv(",
        "<",
        ">",
        "+",
        "sshpass",
        "login",
        "wandb",
        "sqlplus",
        "config",
        "echo",
        "sudo",
        "-S",
        "|",
        "$(",
        ")",
        "<<",
        "<<<",
        "\\u003d",
        "%3d",
        "#",
        "$",
        "--key",
        "--pwd",
        "PRIVATE KEY-----",
        "-----END",
        "é",
        "--",
        "-",
    ]);
    prop::collection::vec(part, 0..9).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn redacting_twice_changes_nothing(
        arguments in prop::collection::vec(argument(), 0..6),
        patterns in prop::collection::vec(prop::sample::select(vec!["*a*", "--lic=*", "-*", "x", "*=b", "*red*"]), 0..3),
        cut in any::<bool>(),
    ) {
        let redaction = own(&patterns);
        let bytes: Vec<&[u8]> = arguments.iter().map(|text| text.as_bytes()).collect();
        let once = redaction.arguments(&bytes, cut);
        let again: Vec<&[u8]> = once.iter().map(Vec::as_slice).collect();
        let twice = redaction.arguments(&again, cut);
        prop_assert_eq!(&once, &twice);
        prop_assert_eq!(once.len(), arguments.len());
    }

    #[test]
    fn no_bytes_panic(arguments in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 0..5), cut in any::<bool>()) {
        let bytes: Vec<&[u8]> = arguments.iter().map(Vec::as_slice).collect();
        let left = own(&["*a*b*", "\u{e9}*"]).arguments(&bytes, cut);
        prop_assert_eq!(left.len(), arguments.len());
    }

    #[test]
    fn a_secret_never_shows(
        before in argument(),
        name in prop::sample::select(vec!["--token", "--api-key", "--client-secret", "-password"]),
        joined in any::<bool>(),
    ) {
        let secret = "Zq9hunter2";
        let arguments = if joined {
            vec!["prog".to_string(), before, format!("{name}={secret} {secret}")]
        } else {
            vec!["prog".to_string(), before, name.to_string(), secret.to_string()]
        };
        let bytes: Vec<&[u8]> = arguments.iter().map(|text| text.as_bytes()).collect();
        let left = Redaction::default().arguments(&bytes, false);
        prop_assert!(!left.iter().any(|bytes| String::from_utf8_lossy(bytes).contains(secret)));
    }
}
