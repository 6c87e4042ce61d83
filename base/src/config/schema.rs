//! The shape of a policy file, made of the table of keys. Every table refuses keys that it does not know, and
//! every value keeps its span, so that later messages can point at it. Nothing here decides anything; what
//! the keys mean stands in `profiles/default.toml`.

use std::borrow::Cow;
use std::collections::BTreeMap;

use toml::Spanned;

use super::index::{self, Indexed, Kind, Mistake, Reader, indexed};
use super::keys::keys;

mod credential;
mod profile;

pub use credential::CredentialSection;
pub use profile::{
    GivenSection, InstructionsSection, ProfileSection, QuirkSection, SeedSection, StateSection,
};

/// A text. That of a policy which is built in stands where it was compiled in.
pub type Text = Spanned<Cow<'static, str>>;
/// A whole number.
pub type Number = Spanned<i64>;
/// `true` or `false`.
pub type Switch = Spanned<bool>;
/// A list of strings, each with its own span.
pub type Strings = Vec<Text>;
/// A list of whole numbers, each with its own span.
pub type Numbers = Vec<Number>;
/// A list of strings that is one value.
pub type Whole = Spanned<Strings>;
/// A table of strings.
pub type Pairs = BTreeMap<Text, Text>;

/// A table of keys.
macro_rules! table {
    ($(#[$about:meta])* $name:ident { $($(#[$line:meta])* $key:ident: $form:ident,)* }) => {
        $(#[$about])*
        #[derive(Debug, Default)]
        pub struct $name {
            $($(#[$line])* pub $key: Option<$form>,)*
        }

        indexed! { $name { $($key,)* } }

        impl $name {
            /// Whether nothing stands in it.
            pub fn is_empty(&self) -> bool {
                true $(&& self.$key.is_none())*
            }
        }
    };
}

/// A table that holds sections of a policy, beside keys of its own.
macro_rules! with_sections {
    (
        [$($section:ident: $Section:ident,)*]
        $(#[$about:meta])*
        $name:ident { $($(#[$line:meta])* $key:ident: $kind:ty,)* }
    ) => {
        $(#[$about])*
        #[derive(Debug, Default)]
        pub struct $name {
            $($(#[$line])* pub $key: $kind,)*
            $(#[allow(missing_docs, reason = "a section, explained at its type")] pub $section: Option<$Section>,)*
        }

        indexed! { $name { $($key,)* $($section,)* } }

        impl $name {
            /// Takes the sections out.
            pub fn take_sections(&mut self) -> Sections {
                Sections { $($section: self.$section.take(),)* }
            }

            /// Whether none of the sections stands in it.
            pub fn is_empty(&self) -> bool {
                true $(&& self.$section.is_none())*
            }
        }
    };
}

macro_rules! schema {
    ($(
        $(#[$about:meta])*
        $section:ident: $Section:ident {
            $(
                $(#[$line:meta])*
                $key:ident: $form:ident => $kind:ty, $read:ident($($arg:expr),*)
                    $($text:literal)? $(= $default:expr)?;
            )*
            $([
                $(#[$below:meta])*
                $within:ident: $Within:ident {
                    $(
                        $(#[$line_within:meta])*
                        $key_within:ident: $form_within:ident => $kind_within:ty, $read_within:ident($($arg_within:expr),*)
                            $($text_within:literal)? $(= $default_within:expr)?;
                    )*
                }
            ])*
        }
    )*) => {
        $(
            table! {
                $(#[$about])*
                $Section {
                    $($(#[$line])* $key: $form,)*
                    $($(#[$below])* $within: $Within,)*
                }
            }
            $(table! {
                $(#[$below])*
                $Within { $($(#[$line_within])* $key_within: $form_within,)* }
            })*
        )*

        with_sections! {
            [$($section: $Section,)*]
            /// The sections that any layer may hold.
            Sections {}
        }

        with_sections! {
            [$($section: $Section,)*]
            /// One policy file: the sections, and sections that hold for one project (in the user's own
            /// file) or under a condition (in the site's).
            Document {
                /// `[profile]`: only in profile files.
                profile: Option<Spanned<ProfileSection>>,
                /// `[projects."PATH"]`: only in the user's `config.toml`.
                projects: Option<Spanned<BTreeMap<Text, Sections>>>,
                /// `[[credential]]`: not in the site's enforced file.
                credential: Vec<Spanned<CredentialSection>>,
                /// `[[when]]`: only in the site's files.
                when: Vec<Spanned<WhenSection>>,
            }
        }

        with_sections! {
            [$($section: $Section,)*]
            /// `[[when]]`: conditions, and sections that hold where all of them are met.
            WhenSection {
                /// Names of groups, one of which the user is in.
                group: Option<Spanned<Patterns>>,
                /// Names of hosts, one of which this one has.
                host: Option<Spanned<Patterns>>,
                /// Partitions of Slurm's, in one of which the job runs; for `[when.slurm.bounds]` those that a
                /// job asks for.
                partition: Option<Spanned<Patterns>>,
                /// Accounts of Slurm's, one of which a job asks for.
                account: Option<Spanned<Patterns>>,
                /// Names of users, one of which is the user's.
                user: Option<Spanned<Patterns>>,
            }
        }
    };
}

keys!(schema);

/// A pattern of names, or a list of them.
#[derive(Debug, Default)]
pub struct Patterns(pub Vec<String>);

impl Indexed for Patterns {
    const KIND: &'static Kind = &Kind::Text;

    fn read(reader: &mut Reader<'_>) -> Result<Self, Mistake> {
        index::one_or_more(reader).map(Self)
    }
}
