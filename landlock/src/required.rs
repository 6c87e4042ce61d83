//! Which features of a jail are required, so that nothing starts where they are missing, and by whom. A
//! built-in or default value may be missing: it opens neither a credential nor the boundary to
//! Slurm. What a site enforces is always required. What a user wrote is required unless the
//! user's policy says that it may be missing, in `[landlock]`.

use agent_sandbox_base::config::source::{Source, Sourced};
use agent_sandbox_base::policy::{Policy, Requirement, Users};

/// A feature that a backend may not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// The limits `jail.tmp_size`, `jail.home_size` and `jail.shm_size`.
    Sizes,
    /// `jail.users = "filtered"`.
    Users,
}

/// A key that requires a feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Required<'a> {
    /// The key.
    pub key: &'static str,
    /// The place that set it.
    pub source: &'a Source,
    /// Whether the user's own policy can say that it may be missing.
    pub waivable: bool,
}

impl Feature {
    /// The key in `[landlock]` that says whether it may be missing, as the policy has it.
    pub fn answer(self, policy: &Policy) -> &Sourced<Requirement> {
        match self {
            Self::Sizes => &policy.landlock.sizes,
            Self::Users => &policy.landlock.users,
        }
    }

    /// The name of that key.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sizes => "sizes",
            Self::Users => "users",
        }
    }

    /// The keys that require it of this policy's jail, those of the site first; empty: it may be
    /// missing.
    pub fn required(self, policy: &Policy) -> Vec<Required<'_>> {
        let mut all = self.enforced(policy);
        let answer = self.answer(policy);
        let counts = |source: &Source| match answer.value {
            Requirement::Refuse => true,
            Requirement::Auto => source.is_users(),
            Requirement::Degraded => false,
        };
        for (key, source) in self.effective(policy) {
            if counts(source) && all.iter().all(|one| (one.key, one.source) != (key, source)) {
                all.push(Required {
                    key,
                    source,
                    waivable: true,
                });
            }
        }
        all
    }

    /// The values that hold, by their keys.
    fn effective(self, policy: &Policy) -> Vec<(&'static str, &Source)> {
        let jail = &policy.jail;
        match self {
            Self::Sizes => vec![
                ("jail.tmp_size", &jail.tmp_size.source),
                ("jail.home_size", &jail.home_size.source),
                ("jail.shm_size", &jail.shm_size.source),
            ],
            Self::Users if jail.users.value == Users::Filtered => {
                vec![("jail.users", &jail.users.source)]
            }
            Self::Users => Vec::new(),
        }
    }

    /// What the site's enforced layers state, also where a narrower value of somebody else's holds.
    fn enforced(self, policy: &Policy) -> Vec<Required<'_>> {
        fn stated<'a, T>(
            key: &'static str,
            value: Option<&'a Sourced<T>>,
        ) -> Option<(&'static str, &'a Source)> {
            value.map(|value| (key, &value.source))
        }
        let layers = policy.bounds.layers.iter();
        let keys = layers.flat_map(|layer| match self {
            Self::Sizes => vec![
                stated("jail.tmp_size", layer.jail.tmp_size.get()),
                stated("jail.home_size", layer.jail.home_size.get()),
                stated("jail.shm_size", layer.jail.shm_size.get()),
            ],
            Self::Users => {
                let filtered = layer.jail.users.get();
                let filtered = filtered.filter(|users| users.value == Users::Filtered);
                vec![stated("jail.users", filtered)]
            }
        });
        keys.flatten()
            .map(|(key, source)| Required {
                key,
                source,
                waivable: false,
            })
            .collect()
    }
}
