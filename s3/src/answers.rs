//! What a store answers in XML: listings, uploads, parts and errors.

use quick_xml::Reader;
use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::Event;

/// An element with its text and its children, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Element {
    pub name: String,
    pub text: String,
    pub children: Vec<Element>,
}

impl Element {
    /// The root of a document; `None` for what is no XML.
    pub(crate) fn parse(text: &str) -> Option<Element> {
        let mut reader = Reader::from_str(text);
        let mut open = vec![Element::default()];
        loop {
            match reader.read_event().ok()? {
                Event::Start(start) => open.push(Element::named(start.local_name().as_ref())?),
                Event::Empty(start) => {
                    let element = Element::named(start.local_name().as_ref())?;
                    open.last_mut()?.children.push(element);
                }
                Event::End(_) => {
                    let done = open.pop()?;
                    open.last_mut()?.children.push(done);
                }
                Event::Text(text) => open.last_mut()?.text.push_str(&text.decode().ok()?),
                Event::CData(text) => open.last_mut()?.text.push_str(&text.decode().ok()?),
                Event::GeneralRef(named) => open.last_mut()?.refer(&named)?,
                Event::Eof => break,
                _ => {}
            }
            if open.len() > DEPTH_MAX {
                return None;
            }
        }
        let [document] = &mut open[..] else { return None };
        (document.children.len() == 1).then(|| document.children.remove(0))
    }

    fn named(name: &[u8]) -> Option<Element> {
        let name = std::str::from_utf8(name).ok()?.to_string();
        Some(Element { name, ..Element::default() })
    }

    fn refer(&mut self, named: &quick_xml::events::BytesRef<'_>) -> Option<()> {
        match named.resolve_char_ref().ok()? {
            Some(letter) => self.text.push(letter),
            None => self.text.push_str(resolve_predefined_entity(&named.decode().ok()?)?),
        }
        Some(())
    }

    /// The text of the first child of this name; empty where there is none.
    pub(crate) fn get(&self, name: &str) -> &str {
        let child = self.children.iter().find(|child| child.name == name);
        child.map_or("", |child| &child.text)
    }

    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Element> {
        self.children.iter().filter(move |child| child.name == name)
    }

    pub(crate) fn is_true(&self, name: &str) -> bool {
        self.get(name) == "true"
    }
}

/// What `%XX` stands for in a listing of `encoding-type=url`, where a plus is a space.
pub(crate) fn decoded(text: &str) -> Option<String> {
    let mut bytes = text.bytes();
    let mut decoded = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => {
                let digits = [bytes.next()?, bytes.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            b'+' => b' ',
            byte => byte,
        });
    }
    String::from_utf8(decoded).ok()
}

/// As text of an element.
pub(crate) fn escaped(text: &str) -> String {
    quick_xml::escape::escape(text).into_owned()
}

const DEPTH_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_read() {
        let text = "<?xml version=\"1.0\"?>\n<L xmlns=\"u\"><K>a&amp;b&#x41;</K><E/>\
                    <C><K>1</K></C><C><K> 2</K></C><T>true</T></L>";
        let root = Element::parse(text).unwrap();
        assert_eq!((&root.name[..], root.get("K"), root.get("E")), ("L", "a&bA", ""));
        let inner: Vec<&str> = root.all("C").map(|child| child.get("K")).collect();
        assert_eq!((inner, root.is_true("T"), root.is_true("F")), (vec!["1", " 2"], true, false));
        let deep = "<a>".repeat(100);
        for bad in ["", "no", "<a>", "<a></b>", "<a/><b/>", "<a>&foo;</a>", &deep] {
            assert_eq!(Element::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn keys_are_decoded() {
        assert_eq!(decoded("a%2Fb+c%C3%BC").unwrap(), "a/b cü");
        for bad in ["%", "%2", "%zz", "%ff"] {
            assert_eq!(decoded(bad), None, "{bad}");
        }
        assert_eq!(escaped("<\"a&b\">"), "&lt;&quot;a&amp;b&quot;&gt;");
    }
}
