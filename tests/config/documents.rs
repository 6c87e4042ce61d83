//! The policies that the book shows are policies: each ```toml block is read as the file that its first
//! line names, else as a user's.

use std::fs;
use std::path::{Path, PathBuf};

use agent_sandbox::config::load::parse;
use agent_sandbox::config::source::Layer;

/// The ```toml blocks of a document, with the lines on which they begin.
fn blocks(markdown: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let mut inside = false;
    for (i, line) in markdown.lines().enumerate() {
        match (inside, line.trim_end()) {
            (false, "```toml") => {
                found.push((i + 1, String::new()));
                inside = true;
            }
            (true, "```") => inside = false,
            (true, line) => {
                let (_, text) = found.last_mut().unwrap();
                text.push_str(line);
                text.push('\n');
            }
            (false, _) => {}
        }
    }
    found
}

/// The layer of the file that a block says it is.
fn layer(text: &str) -> Layer {
    let first = text.lines().next().unwrap_or("");
    match first {
        _ if first.starts_with("# /etc/agent-sandbox/enforced.toml") => Layer::SiteEnforced,
        _ if first.starts_with("# /etc/agent-sandbox/defaults.toml") => Layer::SiteDefaults,
        _ if first.contains("/profiles/") => Layer::Profile,
        // Only the site's files may say it.
        _ if text.contains("[[when]]") => Layer::SiteEnforced,
        _ => Layer::User,
    }
}

fn pages(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            pages(&path, found);
        } else if path.extension().is_some_and(|end| end == "md") {
            found.push(path);
        }
    }
}

#[test]
fn policies_in_the_book_are_policies() {
    let root = std::env::var_os("AGENT_SANDBOX_ROOT").unwrap_or(env!("CARGO_MANIFEST_DIR").into());
    let mut found = vec![Path::new(&root).join("README.md")];
    pages(&Path::new(&root).join("docs"), &mut found);
    let (mut read, mut complaints) = (0, Vec::new());
    for page in found {
        // It is made of the built-in policy, entry by entry.
        if page.ends_with("policy-keys.md") {
            continue;
        }
        let text = fs::read_to_string(&page).unwrap();
        for (line, block) in blocks(&text) {
            // One that is shown as wrong is for the session below it.
            let name = format!("{}:{line}", page.display());
            read += 1;
            if let Err(error) = parse(layer(&block), &name, &block)
                && !block.contains("nestde")
            {
                complaints.push(error.to_string());
            }
        }
    }
    assert!(read > 10, "{read} policies found in the book");
    assert!(complaints.is_empty(), "{}", complaints.join("\n\n"));
}

#[test]
fn policies_are_found_with_their_layer() {
    let text = "```toml\n# /etc/agent-sandbox/enforced.toml\n[jail]\n```\n```sh\nx\n```\n```toml\na = 1\n```\n";
    let found = blocks(text);
    let layers: Vec<Layer> = found.iter().map(|(_, text)| layer(text)).collect();
    assert_eq!(layers, [Layer::SiteEnforced, Layer::User]);
    assert_eq!(found[1], (8, "a = 1\n".to_owned()));
}
