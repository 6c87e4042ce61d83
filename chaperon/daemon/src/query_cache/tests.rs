//! Answers that are kept, found and forgotten.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

static COUNT: AtomicUsize = AtomicUsize::new(0);

/// The user's own directory.
struct Own(PathBuf);

impl Own {
    fn new() -> Self {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("query-cache-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        Self(path)
    }

    /// What a session knows of it.
    fn session(&self) -> QueryCache {
        self.with_mark("\x1eabcde")
    }

    fn with_mark(&self, mark: &str) -> QueryCache {
        let order = order::QueryCache {
            directory: self.0.as_os_str().as_bytes().to_vec(),
            seconds: 60,
        };
        QueryCache::new(Some(&order), nix::unistd::getuid().as_raw(), mark)
    }

    fn files(&self) -> Vec<PathBuf> {
        let all = fs::read_dir(self.0.join(DIRECTORY)).unwrap();
        let all = all.map(|entry| entry.unwrap().path());
        let own = [LOCK, CHANGES, KEY];
        all.filter(|path| own.iter().all(|name| !path.ends_with(name)))
            .collect()
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What a session asks of `squeue`.
struct Asked<'a> {
    words: &'a [&'a str],
    variables: &'a [(&'a str, &'a str)],
}

const PLAIN: Asked<'static> = Asked {
    words: &["--me"],
    variables: &[("LANG", "C")],
};

impl QueryCache {
    async fn look(&self, asked: &Asked<'_>) -> Found {
        let words: Vec<OsString> = asked.words.iter().map(OsString::from).collect();
        let variables = asked.variables.iter();
        let variables = variables.map(|(name, value)| (OsStr::new(*name), OsStr::new(*value)));
        self.find(OsStr::new("/usr/bin/squeue"), &words, variables)
            .await
    }

    /// What it gets: an answer that was there, or none.
    async fn said(&self, asked: &Asked<'_>) -> Option<Vec<u8>> {
        match self.look(asked).await {
            Found::Answer(answer) => Some(answer.output),
            Found::Nothing(_) => None,
        }
    }

    /// Asks Slurm, which says this.
    async fn ask(&self, asked: &Asked<'_>, said: &[u8]) {
        let Found::Nothing(Some(mut place)) = self.look(asked).await else {
            panic!("there is no place for an answer");
        };
        self.asked(&mut place);
        self.keep(place, End::SUCCESS, said.to_vec(), Vec::new());
    }
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_time().build().unwrap();
    runtime.block_on(test);
}

#[test]
fn an_answer_is_for_its_own_question_alone() {
    run(async {
        let own = Own::new();
        let (one, other) = (own.session(), own.session());
        one.ask(&PLAIN, b"mine").await;
        assert_eq!(other.said(&PLAIN).await.unwrap(), b"mine");
        for (words, variables) in [
            (&["--me", "--all"][..], &[("LANG", "C")][..]),
            (&["--m", "e"], &[("LANG", "C")]),
            (&[], &[("--me", "LANG"), ("C", "")]),
            (&["--me"], &[("LANG", "C"), ("SLURM_CONF", "/other")]),
            (&["--me"], &[("LAN", "GC")]),
            (&["--me"], &[]),
        ] {
            let question = Asked { words, variables };
            assert_eq!(other.said(&question).await, None, "{words:?} {variables:?}");
        }
        // Nor does it become that of another by its name.
        let different = Asked {
            words: &["--all"],
            ..PLAIN
        };
        one.ask(&different, b"all").await;
        let files = own.files();
        assert_eq!(files.len(), 2);
        let aside = own.0.join("aside");
        fs::rename(&files[0], &aside).unwrap();
        fs::rename(&files[1], &files[0]).unwrap();
        fs::rename(&aside, &files[1]).unwrap();
        assert_eq!(other.said(&PLAIN).await, None);
        assert_eq!(other.said(&different).await, None);
    });
}

#[test]
fn nothing_from_before_a_change_is_an_answer() {
    run(async {
        let own = Own::new();
        let (one, other) = (own.session(), own.session());
        one.ask(&PLAIN, b"before").await;
        // Another had asked before the change, and was answered after it.
        let different = Asked {
            words: &["--all"],
            ..PLAIN
        };
        let Found::Nothing(Some(mut place)) = other.look(&different).await else {
            panic!("there is an answer");
        };
        other.asked(&mut place);
        one.change();
        other.keep(place, End::SUCCESS, b"before".to_vec(), Vec::new());
        for session in [&one, &other] {
            assert_eq!(session.said(&PLAIN).await, None);
            assert_eq!(session.said(&different).await, None);
        }
        // Who began later asks for itself.
        other.ask(&PLAIN, b"after").await;
        assert_eq!(other.said(&PLAIN).await.unwrap(), b"after");
        assert_eq!(own.session().said(&PLAIN).await, None);
        // What it asked for may come after the command began that asked: it asks until then.
        assert_eq!(one.said(&PLAIN).await, None);
    });
}

#[test]
fn of_many_at_once_one_asks() {
    run(async {
        let own = Own::new();
        let sessions: Vec<QueryCache> = (0..20).map(|_| own.session()).collect();
        let first = &sessions[0];
        let Found::Nothing(Some(mut place)) = first.look(&PLAIN).await else {
            panic!("there is an answer");
        };
        let answers = async {
            first.asked(&mut place);
            tokio::time::sleep(Duration::from_millis(100)).await;
            first.keep(place, End::Code(1), b"once".to_vec(), b"error".to_vec());
        };
        let others = async {
            for session in &sessions[1..] {
                let Found::Answer(answer) = session.look(&PLAIN).await else {
                    panic!("another asks as well");
                };
                assert_eq!(
                    (&answer.output[..], &answer.error[..]),
                    (&b"once"[..], &b"error"[..])
                );
                assert_eq!(answer.end, End::Code(1));
            }
        };
        tokio::join!(answers, others);
        // Whoever gives up, or was stopped by a signal, leaves it to the next.
        let gone = Asked {
            words: &["--all"],
            ..PLAIN
        };
        drop(first.look(&gone).await);
        let Found::Nothing(Some(mut place)) = first.look(&gone).await else {
            panic!("there is no place");
        };
        first.asked(&mut place);
        first.keep(place, End::Signal(15), b"half".to_vec(), Vec::new());
        assert!(matches!(
            sessions[1].look(&gone).await,
            Found::Nothing(Some(_))
        ));
    });
}

#[test]
fn answers_have_room_for_so_many_and_old_ones_go() {
    run(async {
        let own = Own::new();
        let session = own.session();
        session.ask(&PLAIN, b"old").await;
        let written = SystemTime::now() - Duration::from_secs(200);
        let files = own.files();
        let file = File::options().write(true).open(&files[0]).unwrap();
        file.set_modified(written).unwrap();
        let words = |number: usize| format!("--jobs={number}");
        let ask = async |number: usize, said: &[u8]| {
            let words = words(number);
            let question = Asked {
                words: &[&words],
                ..PLAIN
            };
            session.ask(&question, said).await;
        };
        ask(0, b"new").await;
        assert!(!files[0].exists() && own.files().len() == 1);
        // Too long for one.
        ask(1, &vec![b'x'; LONGEST + 1]).await;
        assert_eq!(own.files().len(), 1);
        // All that there is room for.
        for number in 2..12 {
            ask(number, &vec![b'x'; LONGEST]).await;
        }
        let sizes: u64 = own
            .files()
            .iter()
            .map(|path| path.metadata().unwrap().len())
            .sum();
        assert!(
            sizes <= MOST_BYTES && sizes > MOST_BYTES - 2 * LONGEST as u64,
            "{sizes}"
        );
        for path in own.files() {
            fs::remove_file(path).unwrap();
        }
        let place = own.0.join(DIRECTORY);
        (0..MOST_ANSWERS).for_each(|number| fs::write(place.join(number.to_string()), "").unwrap());
        ask(50, b"one more").await;
        assert_eq!(own.files().len(), MOST_ANSWERS);
        session.clear();
        assert!(own.files().is_empty());
        // One that cannot be put in its place leaves nothing.
        ask(60, b"last").await;
        let taken = own.files().remove(0);
        fs::remove_file(&taken).unwrap();
        fs::create_dir(&taken).unwrap();
        ask(60, b"last").await;
        assert_eq!(own.files(), [taken]);
    });
}

#[test]
fn a_directory_that_is_not_the_users_alone_is_none() {
    run(async {
        let own = Own::new();
        for path in [own.0.clone(), own.0.join(DIRECTORY)] {
            assert!(own.session().shared.is_some());
            fs::set_permissions(&path, fs::Permissions::from_mode(0o770)).unwrap();
            assert!(own.session().shared.is_none(), "{}", path.display());
            fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        }
        fs::remove_dir_all(own.0.join(DIRECTORY)).unwrap();
        std::os::unix::fs::symlink("/tmp", own.0.join(DIRECTORY)).unwrap();
        let session = own.session();
        assert!(matches!(session.look(&PLAIN).await, Found::Nothing(None)));
        session.change();
    });
}

/// Who reads a mark in a command line of one session's could forge columns of another's by it.
#[test]
fn each_session_has_a_mark_of_its_own() {
    run(async {
        let own = Own::new();
        let (one, other) = (own.with_mark("\x1eabcde"), own.with_mark("\x1efghij"));
        let asked = |words| Asked { words, ..PLAIN };
        one.ask(&asked(&["-o%i\x1eabcde"]), b"7\x1eabcde\x1efghi8\x1eabcde")
            .await;
        let said = other.said(&asked(&["-o%i\x1efghij"])).await.unwrap();
        assert_eq!(said, b"7\x1efghij\x1efghi8\x1efghij");
        // It is the other's mark, and of no meaning here.
        assert_eq!(other.said(&asked(&["-o%i\x1eabcde"])).await, None);
    });
}

/// Names of files and numbers of locks can be seen by others.
#[test]
fn names_say_nothing_of_questions() {
    run(async {
        let name = async || {
            let own = Own::new();
            let session = own.session();
            session.ask(&PLAIN, b"mine").await;
            own.files()[0].file_name().unwrap().to_owned()
        };
        assert_ne!(name().await, name().await);
    });
}
