//! Keys that are known by how they begin.
//!
//! Sources: what the services document of their keys, each with less than its real length.

/// Keys of one service.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// How they begin, with a space between two beginnings.
    begins: &'static str,
    /// What may follow, beside letters and digits.
    signs: &'static str,
    /// So many bytes of that follow at least.
    pub least: usize,
}

/// The table.
pub const KEYS: &[Key] = &[
    // AWS: access keys of users and temporary ones. Secret ones have no shape and are known by their names.
    key("AKIA ASIA ABIA ACCA", PLAIN, 12),
    // AWS: session tokens; Bedrock.
    key("FwoGZXIv AQoDYXdz IQoJb3JpZ2lu", BASE64, 24),
    key("ABSK", BASE64, 32),
    // GitHub.
    key("ghp_ gho_ ghu_ ghs_ ghr_", PLAIN, 16),
    key("github_pat_", DASHED, 16),
    // GitLab: of people, deploy tokens, runners, triggers, feeds, jobs, mail, agents.
    key("glpat- gldt- glrt- glptt- glft- glcbt-", DASHED, 16),
    key("glimt- glsoat- gloas- glagent-", DASHED, 16),
    // Bitbucket, Atlassian.
    key("ATBB", PLAIN, 24),
    key("ATATT3x ATCTT3x", DASHED, 16),
    // OpenAI, Anthropic (sk-ant-), OpenRouter and others who write it so.
    key("sk-", DASHED, 16),
    // xAI, Groq, Hugging Face, Replicate, NVIDIA, Perplexity, Fireworks, Tavily, Jina, Cerebras, Pinecone, LangSmith.
    key("xai- nvapi- tvly-", DASHED, 16),
    key("gsk_ hf_ api_org_ r8_", PLAIN, 16),
    key("fw_", PLAIN, 20),
    key("pplx- jina_ csk-", PLAIN, 24),
    key("pcsk_ lsv2_", DASHED, 24),
    // Stripe, Square, Meta, Shopify.
    key("sk_live_ sk_test_ rk_live_", PLAIN, 12),
    key("whsec_", PLAIN, 16),
    key("sq0csp- sq0atp-", DASHED, 16),
    key("EAACEdEose0cBA", PLAIN, 8),
    key("shpat_ shpss_ shpca_ shppa_", PLAIN, 16),
    // Slack, Discord.
    key("xoxa- xoxb- xoxc- xoxd- xoxe- xoxo- xoxp-", DASHED, 8),
    key("xoxr- xoxs- xapp-", DASHED, 8),
    key("xoxe.", DOTTED, 8),
    key("hooks.slack.com/services/", PATH, 8),
    key("discord.com/api/webhooks/", PATH, 8),
    // Google: keys, access and refresh tokens, secrets of clients. Yandex.
    key("AIza AQVN 1//0", DASHED, 24),
    key("ya29. GOCSPX-", DASHED, 16),
    // Registries: npm, PyPI, RubyGems, Docker.
    key("npm_", PLAIN, 24),
    key("pypi-", DASHED, 24),
    key("rubygems_", PLAIN, 16),
    key("dckr_pat_", DASHED, 16),
    // DigitalOcean, Pulumi, Netlify, Buildkite, Notion.
    key("dop_v1_ pul- nfp_ bkua_ ntn_", PLAIN, 24),
    // Databricks, Notion's old ones.
    key("dapi secret_", PLAIN, 32),
    // SendGrid, Dropbox.
    key("SG.", DOTTED, 32),
    key("sl.", DASHED, 32),
    // Vault, Tailscale, Grafana, Sentry, Figma, PlanetScale, CircleCI.
    key("hvs. hvb. glsa_ sntrys_ figd_", DASHED, 16),
    key("pscale_tkn_ pscale_pw_ CCIPAT_", DASHED, 16),
    key("tskey-auth-", DASHED, 12),
    // Linear, Doppler, New Relic, Supabase.
    key("lin_api_ dp.pt. NRAK- sbp_", PLAIN, 16),
    // Postman, Terraform, Sourcegraph, Brevo.
    key("PMAK- atlasv1. sgp_ xkeysib-", DASHED, 24),
    // age(1).
    key("AGE-SECRET-KEY-", PLAIN, 16),
    // JSON Web Tokens (RFC 7519): `{"` in base64.
    key("eyJ", DOTTED, 24),
];

const PLAIN: &str = "";
const DASHED: &str = "_-";
const DOTTED: &str = "_-.";
const PATH: &str = "_-/";
const BASE64: &str = "+/=";

const fn key(begins: &'static str, signs: &'static str, least: usize) -> Key {
    Key {
        begins,
        signs,
        least,
    }
}

impl Key {
    /// How keys of this service begin.
    pub fn begins(&self) -> impl Iterator<Item = &'static str> {
        self.begins.split(' ')
    }

    /// Whether the byte can follow.
    #[must_use]
    pub fn has(&self, byte: u8) -> bool {
        byte.is_ascii_alphanumeric() || self.signs.as_bytes().contains(&byte)
    }
}
