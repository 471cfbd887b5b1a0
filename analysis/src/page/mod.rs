//! Web pages of what was recorded: a run, a campaign, a host, a spread. A page is a value of
//! sections, which becomes one file of HTML that needs nothing else: no network, no font. It is
//! whole without its script.

pub mod campaign;
pub mod host;
mod html;
pub mod live;
pub mod run;
pub mod spread;
mod style;
pub mod trend;
mod words;

use crate::plot::{Figure, Table};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    pub title: String,
    /// Beneath the title: when, where, with which version.
    pub subtitle: String,
    pub sections: Vec<Section>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Section {
    /// Its address within the page: letters, digits and `-`.
    pub id: String,
    pub heading: String,
    pub blocks: Vec<Block>,
}

/// All text is plain: what a stranger has named is in it as text.
#[derive(Clone, Debug, PartialEq)]
pub enum Block {
    /// The answer of a section, in a sentence.
    Lead(String),
    Text(String),
    List(Vec<String>),
    /// Names and values.
    Facts(Vec<(String, String)>),
    Table(Table),
    /// Charts that stand beside each other where there is space.
    Figures(Vec<Figure>),
    /// What a shell takes.
    Command(String),
}

impl Page {
    /// The whole page as HTML.
    pub fn html(&self) -> String {
        html::page(self)
    }

    pub fn figures(&self) -> impl Iterator<Item = &Figure> {
        let blocks = self.sections.iter().flat_map(|section| &section.blocks);
        blocks.flat_map(|block| match block {
            Block::Figures(figures) => figures.as_slice(),
            _ => &[],
        })
    }
}

impl Section {
    /// `None` where it has nothing to say.
    fn of(id: &str, heading: &str, blocks: Vec<Block>) -> Option<Section> {
        let has_words = |block: &Block| match block {
            Block::Lead(text) | Block::Text(text) | Block::Command(text) => !text.is_empty(),
            Block::List(list) => !list.is_empty(),
            Block::Facts(facts) => !facts.is_empty(),
            Block::Table(table) => !table.rows.is_empty(),
            Block::Figures(figures) => !figures.is_empty(),
        };
        let blocks: Vec<Block> = blocks.into_iter().filter(has_words).collect();
        let (id, heading) = (id.to_string(), heading.to_string());
        (!blocks.is_empty()).then_some(Section { id, heading, blocks })
    }
}
