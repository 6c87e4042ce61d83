//! What a person sees who made a mistake in a policy file.

use agent_sandbox::config::diagnostic::nearest;
use agent_sandbox::config::load::parse;
use agent_sandbox::config::source::Layer;

use crate::support::said;

#[track_caller]
fn refused(layer: Layer, text: &str, expected: &str) {
    let error = parse(layer, "F", text).expect_err("is accepted");
    assert_eq!(said(&error), expected.trim_matches('\n'));
}

#[test]
fn unknown_key() {
    refused(
        Layer::User,
        "# mine\n[files]\nread = []\ntimeout = 3\n",
        r"
unknown key `timeout`
 --> F:4:1
  |
4 | timeout = 3
  | ^^^^^^^
hint: did you mean `timeout_ms`?",
    );
}

#[test]
fn unknown_section() {
    refused(
        Layer::User,
        "[flies]\nread = []\n",
        r"
unknown section `flies`
 --> F:1:2
  |
1 | [flies]
  |  ^^^^^
hint: did you mean `files`?",
    );
}

#[test]
fn unknown_key_like_no_other() {
    refused(
        Layer::User,
        "[network]\nxyzzy = 1\n",
        r"
unknown key `xyzzy`
 --> F:2:1
  |
2 | xyzzy = 1
  | ^^^^^
hint: known here: `mode`, `allow`, `deny`, `private`, `forward`, `jobs`, `credentials`",
    );
}

#[test]
fn key_of_another_section() {
    refused(
        Layer::User,
        "[home]\nunhide = []\n",
        r"
unknown key `unhide`
 --> F:2:1
  |
2 | unhide = []
  | ^^^^^^
hint: `unhide` is a key of `[files]`",
    );
}

#[test]
fn key_above_its_section() {
    refused(
        Layer::User,
        "tmp_size = \"1G\"\n",
        r#"
unknown key `tmp_size`
 --> F:1:1
  |
1 | tmp_size = "1G"
  | ^^^^^^^^
hint: `tmp_size` is a key of `[jail]`: write it below `[jail]`"#,
    );
}

#[test]
fn unknown_key_in_a_project_section() {
    refused(
        Layer::User,
        "[projects.\"~/a\".files]\nraed = []\n",
        r"
unknown key `raed`
 --> F:2:1
  |
2 | raed = []
  | ^^^^
hint: did you mean `read`?",
    );
}

#[test]
fn string_for_a_list() {
    refused(
        Layer::User,
        "[files]\nread = \"~/x\"\n",
        r#"
expected a list of strings, found the string "~/x"
 --> F:2:8
  |
2 | read = "~/x"
  |        ^^^^^
hint: write a list: `["~/x"]`"#,
    );
}

#[test]
fn number_in_a_list() {
    refused(
        Layer::User,
        "[files]\nread = [\n    \"/a\", 3,\n]\n",
        r#"
expected a string, found the number 3
 --> F:3:11
  |
3 |     "/a", 3,
  |           ^
hint: put it in quotes: `"3"`"#,
    );
}

#[test]
fn string_for_a_number() {
    refused(
        Layer::User,
        "[files]\ntimeout_ms = \"3\"\n",
        r#"
expected a whole number, found the string "3"
 --> F:2:14
  |
2 | timeout_ms = "3"
  |              ^^^
hint: write it without quotes"#,
    );
}

#[test]
fn number_for_a_switch() {
    refused(
        Layer::User,
        "[jail]\nnested = 1\n",
        r"
expected `true` or `false`, found the number 1
 --> F:2:10
  |
2 | nested = 1
  |          ^",
    );
}

#[test]
fn string_for_a_section() {
    refused(
        Layer::User,
        "files = \"x\"\n",
        r#"
expected a table of keys, found the string "x"
 --> F:1:9
  |
1 | files = "x"
  |         ^^^"#,
    );
}

#[test]
fn a_key_that_is_missing() {
    refused(
        Layer::User,
        "[[credential]]\nname = \"x\"\n",
        r"
the key `hosts` is missing
 --> F:1:1
  |
1 | [[credential]]
  | ^^^^^^^^^^^^^^
hint: write `hosts = …` here",
    );
}

#[test]
fn one_table_for_a_list_of_them() {
    refused(
        Layer::User,
        "[credential]\nname = \"x\"\n",
        r"
expected a list of tables: `[[credential]]`
 --> F:1:1
  |
1 | [credential]
  | ^^^^^^^^^^^^",
    );
    refused(
        Layer::Profile,
        "[profile.quirks]\nversion = \"1\"\n",
        r"
expected a list of tables: `[[profile.quirks]]`
 --> F:1:1
  |
1 | [profile.quirks]
  | ^^^^^^^^^^^^^^^^",
    );
}

#[test]
fn a_date_for_a_string() {
    refused(
        Layer::User,
        "[jail]\ntmp_size = 2026-11-29\n",
        r#"
expected a string, found the date 2026-11-29
 --> F:2:12
  |
2 | tmp_size = 2026-11-29
  |            ^^^^^^^^^^
hint: put it in quotes: `"2026-11-29"`"#,
    );
}

#[test]
fn one_number_for_a_list_of_them() {
    refused(
        Layer::User,
        "[network]\nforward = 8080\n",
        r"
expected a list of whole numbers, found the number 8080
 --> F:2:11
  |
2 | forward = 8080
  |           ^^^^
hint: write a list: `[8080]`",
    );
}

#[test]
fn half_a_number_for_a_switch() {
    refused(
        Layer::User,
        "[jail]\nnested = 0.5\n",
        r"
expected `true` or `false`, found the number 0.5
 --> F:2:10
  |
2 | nested = 0.5
  |          ^^^",
    );
}

#[test]
fn a_number_that_64_bits_do_not_hold() {
    refused(
        Layer::User,
        "[files]\ntimeout_ms = 99999999999999999999\n",
        r"
64 bits are too few for this whole number
 --> F:2:14
  |
2 | timeout_ms = 99999999999999999999
  |              ^^^^^^^^^^^^^^^^^^^^",
    );
}

#[test]
fn the_same_key_twice() {
    refused(
        Layer::User,
        "[files]\nread = []\nread = []\n",
        r"
duplicate key
 --> F:3:1
  |
3 | read = []
  | ^^^^",
    );
}

#[test]
fn a_list_without_end() {
    let error =
        parse(Layer::User, "F", "[files]\nread = [\n  \"/a\",\n\n\n").expect_err("is accepted");
    assert_eq!(error.line(), Some(3), "{error}");
    assert!(error.to_string().contains("3 |   \"/a\","), "{error}");
}

#[test]
fn wide_letters_and_windows_line_ends() {
    refused(
        Layer::User,
        "[env]\r\nset = { \"größe\" = 1 }\r\n",
        r#"
expected a string, found the number 1
 --> F:2:19
  |
2 | set = { "größe" = 1 }
  |                   ^
hint: put it in quotes: `"1"`"#,
    );
}

#[test]
fn no_control_character_reaches_the_terminal() {
    let error = parse(Layer::User, "F", "[files]\n\"a\\u001b]0;x\" = 1 # \u{9}\n")
        .expect_err("is accepted");
    assert!(
        said(&error)
            .chars()
            .all(|letter| letter == '\n' || !letter.is_control()),
        "{error:?}"
    );
}

#[test]
fn profile_outside_a_profile_file() {
    refused(
        Layer::User,
        "[profile]\ncommands = [\"x\"]\n",
        r"
`[profile]` has a meaning only in a profile file
 --> F:1:1
  |
1 | [profile]
  | ^^^^^^^^^
hint: profiles are the files below `~/.config/agent-sandbox/profiles`",
    );
}

#[test]
fn projects_outside_the_users_file() {
    for layer in [
        Layer::BuiltIn,
        Layer::Profile,
        Layer::SiteDefaults,
        Layer::CommandLine,
        Layer::SiteEnforced,
    ] {
        let error =
            parse(layer, "F", "[projects.\"/a\".files]\nread = []\n").expect_err("is accepted");
        assert!(
            error
                .to_string()
                .contains("only in the user's own configuration"),
            "{layer:?}: {error}"
        );
        assert_eq!(error.line(), Some(1));
    }
}

#[test]
fn project_paths_that_match_nothing() {
    for path in ["work", "./work", "~bob/x", "$HOME/x", "", "/a/../b", "~/.."] {
        let text = format!("\n[projects.\"{path}\".files]\nread = []\n");
        let error = parse(Layer::User, "F", &text).expect_err(path);
        assert_eq!(error.line(), Some(2), "{error}");
    }
}

#[test]
fn commands_with_a_directory() {
    for command in ["", "/bin/x", "a/b"] {
        let text = format!("[profile]\ncommands = [\"ok\", \"{command}\"]\n");
        let error = parse(Layer::Profile, "F", &text).expect_err(command);
        assert_eq!(error.line(), Some(2), "{error}");
    }
}

#[test]
fn a_value_can_be_refused_later() {
    let raw = parse(Layer::User, "F", "\n\n[home]\nmode = \"tmps\"\n")
        .unwrap()
        .raw;
    let span = raw
        .sections
        .home
        .as_ref()
        .unwrap()
        .mode
        .as_ref()
        .unwrap()
        .span();
    assert_eq!(raw.source(span.clone()).to_string(), "F:4");
    let error = raw.reject(
        span,
        "unknown value `tmps`",
        Some("did you mean `tmpfs`?".to_owned()),
    );
    assert_eq!(
        said(&error),
        "unknown value `tmps`\n --> F:4:8\n  |\n4 | mode = \"tmps\"\n  |        ^^^^^^\nhint: did you mean `tmpfs`?"
    );
}

#[test]
fn nearest_word() {
    let keys = ["read", "write", "hide", "unhide", "timeout_ms", "tmp_size"];
    assert_eq!(nearest("raed", keys), Some("read"));
    assert_eq!(nearest("WRITE", keys), Some("write"));
    assert_eq!(nearest("timeout", keys), Some("timeout_ms"));
    assert_eq!(nearest("tmpsize", keys), Some("tmp_size"));
    assert_eq!(nearest("unhidden", keys), Some("unhide"));
    assert_eq!(nearest("network", keys), None);
    assert_eq!(nearest("", keys), None);
}
