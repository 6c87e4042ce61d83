//! Keys that are known by how they look, whatever stands before them.

use super::Edit;

/// What a key consists of, behind its beginning.
#[derive(Clone, Copy)]
enum Letters {
    /// Capitals and digits.
    Capitals,
    /// Letters and digits.
    Plain,
    /// Also `_` and `-`.
    Dashed,
    /// Also `.`: parts of base64 for URLs.
    Dotted,
    /// Also `/`: a path.
    Path,
    /// Letters, digits and the other signs of base64.
    Base64,
}

impl Letters {
    fn has(self, byte: u8) -> bool {
        match self {
            Letters::Capitals => byte.is_ascii_uppercase() || byte.is_ascii_digit(),
            Letters::Plain => byte.is_ascii_alphanumeric(),
            Letters::Dashed => byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'),
            Letters::Dotted => byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'),
            Letters::Base64 => byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'='),
            Letters::Path => byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'/'),
        }
    }
}

/// A kind of key: how it begins, what follows, and so many bytes of that at least. Sources: what the
/// services document of their keys, each with less than its real length.
const SHAPES: &[(&str, Letters, usize)] = &[
    // AWS: access keys, of users and temporary; secret ones have no shape and are known by their names.
    ("AKIA", Letters::Capitals, 12),
    ("ASIA", Letters::Capitals, 12),
    ("ABIA", Letters::Capitals, 12),
    ("ACCA", Letters::Capitals, 12),
    // GitHub, GitLab.
    ("ghp_", Letters::Plain, 16),
    ("gho_", Letters::Plain, 16),
    ("ghu_", Letters::Plain, 16),
    ("ghs_", Letters::Plain, 16),
    ("ghr_", Letters::Plain, 16),
    ("github_pat_", Letters::Dashed, 16),
    ("glpat-", Letters::Dashed, 16),
    ("gldt-", Letters::Dashed, 16),
    ("glrt-", Letters::Dashed, 16),
    ("glptt-", Letters::Dashed, 16),
    // OpenAI, Anthropic (sk-ant-), OpenRouter and others who write it so.
    ("sk-", Letters::Dashed, 16),
    ("xai-", Letters::Dashed, 16),
    ("gsk_", Letters::Plain, 16),
    ("hf_", Letters::Plain, 16),
    ("r8_", Letters::Plain, 16),
    // Stripe.
    ("sk_live_", Letters::Plain, 12),
    ("sk_test_", Letters::Plain, 12),
    ("rk_live_", Letters::Plain, 12),
    ("whsec_", Letters::Plain, 16),
    // Slack, Discord.
    ("xoxa-", Letters::Dashed, 8),
    ("xoxb-", Letters::Dashed, 8),
    ("xoxc-", Letters::Dashed, 8),
    ("xoxd-", Letters::Dashed, 8),
    ("xoxe-", Letters::Dashed, 8),
    ("xoxe.", Letters::Dotted, 8),
    ("xoxo-", Letters::Dashed, 8),
    ("xoxp-", Letters::Dashed, 8),
    ("xoxr-", Letters::Dashed, 8),
    ("xoxs-", Letters::Dashed, 8),
    ("xapp-", Letters::Dashed, 8),
    ("hooks.slack.com/services/", Letters::Path, 8),
    ("discord.com/api/webhooks/", Letters::Path, 8),
    // Google.
    ("AIza", Letters::Dashed, 24),
    ("ya29.", Letters::Dashed, 16),
    ("GOCSPX-", Letters::Dashed, 16),
    // Registries and clouds.
    ("npm_", Letters::Plain, 24),
    ("pypi-", Letters::Dashed, 24),
    ("dop_v1_", Letters::Plain, 24),
    ("dckr_pat_", Letters::Dashed, 16),
    ("dapi", Letters::Plain, 32),
    ("SG.", Letters::Dotted, 32),
    ("hvs.", Letters::Dashed, 16),
    ("AGE-SECRET-KEY-", Letters::Capitals, 16),
    ("hvb.", Letters::Dashed, 16),
    ("pul-", Letters::Plain, 24),
    ("tskey-auth-", Letters::Dashed, 12),
    // Grafana, Sentry, Atlassian, Linear, Figma, Notion, Postman, NVIDIA, Perplexity.
    ("glsa_", Letters::Dashed, 16),
    ("sntrys_", Letters::Dashed, 16),
    ("ATATT3x", Letters::Dashed, 16),
    ("lin_api_", Letters::Plain, 16),
    ("figd_", Letters::Dashed, 16),
    ("ntn_", Letters::Plain, 24),
    ("PMAK-", Letters::Dashed, 24),
    ("nvapi-", Letters::Dashed, 16),
    ("pplx-", Letters::Plain, 24),
    // GitLab's others, Square, Meta, Dropbox, Shopify, Doppler, New Relic, RubyGems, Supabase, Terraform, Sourcegraph.
    ("glft-", Letters::Dashed, 16),
    ("glcbt-", Letters::Dashed, 16),
    ("glimt-", Letters::Dashed, 16),
    ("glsoat-", Letters::Dashed, 16),
    ("gloas-", Letters::Dashed, 16),
    ("glagent-", Letters::Dashed, 16),
    ("sq0csp-", Letters::Dashed, 16),
    ("sq0atp-", Letters::Dashed, 16),
    ("EAACEdEose0cBA", Letters::Plain, 8),
    ("sl.", Letters::Dashed, 32),
    ("shpat_", Letters::Plain, 16),
    ("shpss_", Letters::Plain, 16),
    ("shpca_", Letters::Plain, 16),
    ("shppa_", Letters::Plain, 16),
    ("dp.pt.", Letters::Plain, 16),
    ("NRAK-", Letters::Plain, 16),
    ("rubygems_", Letters::Plain, 16),
    ("sbp_", Letters::Plain, 16),
    ("atlasv1.", Letters::Dashed, 24),
    ("sgp_", Letters::Dashed, 24),
    // Fireworks, Notion's old ones, Tavily, Jina, Cerebras, Pinecone, LangSmith, Hugging Face's organisations.
    ("fw_", Letters::Plain, 20),
    ("secret_", Letters::Plain, 32),
    ("tvly-", Letters::Dashed, 16),
    ("jina_", Letters::Plain, 24),
    ("csk-", Letters::Plain, 24),
    ("pcsk_", Letters::Dashed, 24),
    ("lsv2_", Letters::Dashed, 24),
    ("api_org_", Letters::Plain, 16),
    // Bitbucket, Bedrock, Brevo, Netlify, PlanetScale, CircleCI, Buildkite, Yandex, Google's refresh tokens.
    ("ATBB", Letters::Plain, 24),
    ("ATCTT3x", Letters::Dashed, 16),
    ("ABSK", Letters::Base64, 32),
    ("xkeysib-", Letters::Dashed, 24),
    ("nfp_", Letters::Plain, 24),
    ("pscale_tkn_", Letters::Dashed, 16),
    ("pscale_pw_", Letters::Dashed, 16),
    ("CCIPAT_", Letters::Dashed, 16),
    ("bkua_", Letters::Plain, 24),
    ("AQVN", Letters::Dashed, 24),
    ("1//0", Letters::Dashed, 24),
    // AWS: session tokens.
    ("FwoGZXIv", Letters::Base64, 24),
    ("AQoDYXdz", Letters::Base64, 24),
    ("IQoJb3JpZ2lu", Letters::Base64, 24),
    // JSON Web Tokens: `{"` in base64.
    ("eyJ", Letters::Dotted, 24),
];

/// The bytes with which one of them begins.
const FIRST: [bool; 256] = {
    let mut first = [false; 256];
    let mut at = 0;
    while at < SHAPES.len() {
        first[SHAPES[at].0.as_bytes()[0] as usize] = true;
        at += 1;
    }
    first[PEM[0] as usize] = true;
    first
};

/// Begins the key in a PEM file (RFC 7468), of whatever kind.
const PEM: &[u8] = b"PRIVATE KEY-----";

/// Ends it.
const PEM_END: &[u8] = b"-----END";

/// Hides the keys in a text. In text that was `cut` off at its end the last one may be shorter.
pub(super) fn hide(text: &[u8], cut: bool, edit: &mut Edit) {
    let mut at = 0;
    while at < text.len() {
        let found = FIRST[usize::from(text[at])].then(|| key(text, at, cut));
        if let Some((begin, end)) = found.flatten() {
            edit.hide(begin, end);
            at = end;
        } else {
            at += 1;
        }
    }
}

/// The key that begins there: what is to be hidden of it.
fn key(text: &[u8], at: usize, cut: bool) -> Option<(usize, usize)> {
    let rest = &text[at..];
    if rest.starts_with(PEM) {
        let begin = at + PEM.len();
        let length = super::find(&text[begin..], PEM_END).unwrap_or(text.len() - begin);
        return (length > 0).then_some((begin, begin + length));
    }
    // In the middle of a word it is none: `task-…`.
    if at > 0 && text[at - 1].is_ascii_alphanumeric() {
        return None;
    }
    SHAPES.iter().find_map(|(beginning, letters, least)| {
        let behind = rest.strip_prefix(beginning.as_bytes())?;
        let length = behind.iter().take_while(|byte| letters.has(**byte)).count();
        let short = cut && length == behind.len() && length > 0;
        // Words with dashes between them have no digit; keys have.
        let telling = length >= *least && behind[..length].iter().any(u8::is_ascii_digit);
        let begin = at + beginning.len();
        (telling || short).then_some((begin, begin + length))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hidden(text: &str, cut: bool) -> String {
        let mut edit = Edit::default();
        hide(text.as_bytes(), cut, &mut edit);
        String::from_utf8(edit.apply(text.as_bytes())).unwrap()
    }

    #[test]
    fn keys_are_known_by_their_shape() {
        // Each row is put together here, so that no file of ours holds what looks like a key.
        let body = "A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8";
        for beginning in [
            "ghp_",
            "github_pat_",
            "glpat-",
            "sk-",
            "sk-ant-api03-",
            "sk-proj-",
            "xoxb-",
            "hf_",
            "AIza",
            "npm_",
            "pypi-",
            "eyJ",
            "gsk_",
            "sk_live_",
            "xoxc-",
            "glptt-",
            "hvb.",
            "pul-",
            "tskey-auth-",
            "glsa_",
            "sntrys_",
            "ATATT3x",
            "lin_api_",
            "figd_",
            "ntn_",
            "PMAK-",
            "nvapi-",
            "pplx-",
            "sq0csp-",
            "EAACEdEose0cBA",
            "fw_",
            "secret_",
            "FwoGZXIv",
            "IQoJb3JpZ2lu",
            "glft-",
            "shpat_",
            "ATBB",
            "1//0",
        ] {
            let text = format!("a {beginning}{body} b");
            let shown = hidden(&text, false);
            assert!(!shown.contains("C3d4"), "{shown}");
            assert!(
                shown.starts_with("a ") && shown.ends_with("[redacted] b"),
                "{shown}"
            );
        }
        let aws = format!("{}{}", "AKIA", "IOSFODNN7EXAMPLE");
        assert_eq!(hidden(&format!("id={aws};"), false), "id=AKIA[redacted];");
    }

    #[test]
    fn other_words_stay() {
        for text in [
            "sk-learn-is-a-long-name-for-a-package",
            "task-1234567890123456789012",
            "AKIA",
            "ghp_short",
            "secret_santa_2024_list_of_the_names_1",
            "fw_update_2024",
            "/a/sl.b/1//0",
            "IQoJb3JpZ2lu",
            "/usr/lib/python3",
        ] {
            assert_eq!(hidden(text, false), text);
        }
    }

    #[test]
    fn a_key_that_is_cut_off_is_hidden_too() {
        assert_eq!(hidden("x ghp_ab", true), "x ghp_[redacted]");
        assert_eq!(hidden("x ghp_ab y", true), "x ghp_ab y");
        assert_eq!(hidden("x ghp_ab", false), "x ghp_ab");
    }

    #[test]
    fn a_private_key_is_hidden() {
        let begin = format!("-----BEGIN RSA {}", "PRIVATE KEY-----");
        assert_eq!(
            hidden(&format!("{begin}\nMIIE\n-----END RSA"), false),
            format!("{begin}[redacted]-----END RSA")
        );
        assert_eq!(
            hidden(&format!("{begin}\nMIIE"), false),
            format!("{begin}[redacted]")
        );
    }
}
