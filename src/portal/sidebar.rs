//! The sidebar of signed-in pages: the places to go to, in groups, and who is signed in.
//!
//! On a narrow screen it is a bar with a menu, which opens without a script: the menu's `details` element has no content
//! of its own, and the style sheet shows what follows it while it is open.

use maud::{Markup, html};

use super::assets;

/// Entries of the navigation under a common heading, which is empty for the first group.
pub(crate) struct Group<P: 'static> {
    pub heading: &'static str,
    pub entries: &'static [Entry<P>],
}

#[derive(Clone, Copy)]
pub(crate) struct Entry<P> {
    pub place: P,
    pub path: &'static str,
    pub name: &'static str,
}

/// An entry of a table of groups.
pub(crate) const fn entry<P: Copy>(place: P, path: &'static str, name: &'static str) -> Entry<P> {
    Entry { place, path, name }
}

pub(crate) const fn group<P>(heading: &'static str, entries: &'static [Entry<P>]) -> Group<P> {
    Group { heading, entries }
}

/// The two sets of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Portal,
    Console,
}

impl Side {
    const BOTH: [Self; 2] = [Self::Portal, Self::Console];

    fn name(self) -> &'static str {
        match self {
            Self::Portal => "Portal",
            Self::Console => "Console",
        }
    }

    fn path(self) -> &'static str {
        match self {
            Self::Portal => "/portal",
            Self::Console => "/portal/console",
        }
    }

    fn sign_out(self) -> &'static str {
        match self {
            Self::Portal => "/portal/sign-out",
            Self::Console => "/portal/console/sign-out",
        }
    }
}

pub(crate) struct Sidebar<'a, P: 'static> {
    pub side: Side,
    /// Whether the person may switch to the other side.
    pub has_other_side: bool,
    pub groups: &'static [Group<P>],
    pub current: P,
    /// The name and the email address of the person.
    pub who: [&'a str; 2],
    pub token_field: Markup,
}

impl<P: Copy + PartialEq> Sidebar<'_, P> {
    /// Renders it with the entries that are `open`. `badge` is what stands behind an entry's name.
    pub(crate) fn shown(
        &self,
        open: impl Fn(&Entry<P>) -> bool,
        badge: impl Fn(P) -> Markup,
    ) -> Markup {
        let mut all = self.groups.iter().flat_map(|group| group.entries);
        let current = all.find(|entry| entry.place == self.current);
        let [name, email] = self.who;
        html! {
            header.side.console[self.side == Side::Console] {
                a.brand href=(self.side.path()) { (assets::logo()) "Tollgate" }
                details.menu {
                    summary { span.unseen { "Menu: " } (current.map_or("Menu", |entry| entry.name)) }
                }
                div.places {
                    @if self.has_other_side { (self.switch()) }
                    nav aria-label=(self.side.name()) {
                        @for group in self.groups { (self.group(group, &open, &badge)) }
                    }
                    div.user {
                        span.muted title=(email) { (name) }
                        button.quiet.theme type="button" hidden data-theme-switch { "Theme" }
                        form method="post" action=(self.side.sign_out()) {
                            (self.token_field)
                            button.quiet type="submit" { "Sign out" }
                        }
                    }
                }
            }
        }
    }

    fn switch(&self) -> Markup {
        html! {
            nav.sides aria-label="Portal or console" {
                ul {
                    @for side in Side::BOTH {
                        li { a href=(side.path()) aria-current=[(side == self.side).then_some("true")] { (side.name()) } }
                    }
                }
            }
        }
    }

    fn group(
        &self,
        group: &Group<P>,
        open: &impl Fn(&Entry<P>) -> bool,
        badge: &impl Fn(P) -> Markup,
    ) -> Markup {
        let entries: Vec<_> = group.entries.iter().filter(|entry| open(entry)).collect();
        let heading = Some(group.heading).filter(|heading| !heading.is_empty());
        html! {
            @if !entries.is_empty() {
                @if let Some(heading) = heading { p { (heading) } }
                ul aria-label=[heading] {
                    @for entry in entries {
                        li {
                            a href=(entry.path) aria-current=[(entry.place == self.current).then_some("page")] {
                                (entry.name) (badge(entry.place))
                            }
                        }
                    }
                }
            }
        }
    }
}
