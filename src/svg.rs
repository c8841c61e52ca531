//! Draws pictures as SVG, with alternative text.
//!
//! Owns the look: a panel of its own, so that a picture can be read on a page of any colour, and darker where the reader's browser
//! prefers that. Knows nothing of what is drawn.

use std::fmt::Write as _;

use crate::words::visible;

/// The colours of the names of `class`, and those of a dark panel.
const LOOK: &str = "\
text{fill:#1f2328}.panel{fill:#fff;stroke:#d0d7de}.faint{fill:#59636e}.bold{font-weight:600}.mid{text-anchor:middle}\
.end{text-anchor:end}.line{stroke:#59636e}.axis{stroke:#d0d7de}.dash{stroke-dasharray:3 3}.idle{fill:#eaeef2}.box{fill:#f6f8fa;stroke:#59636e}\
.red{fill:#cf222e}.green{fill:#1a7f37}.blue{fill:#0969da}.amber{fill:#9a6700}.on{fill:#fff}\
@media(prefers-color-scheme:dark){text{fill:#f0f6fc}.panel{fill:#0d1117;stroke:#3d444d}.faint{fill:#9198a1}.line{stroke:#9198a1}\
.axis{stroke:#3d444d}.idle{fill:#21262d}.box{fill:#151b23;stroke:#9198a1}.red{fill:#f85149}.green{fill:#3fb950}.blue{fill:#4493f8}\
.amber{fill:#d29922}.on{fill:#0d1117}}";

/// A picture. Its units are pixels at its natural size, from the top left.
#[derive(Clone, Debug)]
pub struct Picture {
    width: f64,
    title: String,
    shapes: String,
}

impl Picture {
    /// Begins a picture with this title, which is also read to those who do not see it.
    pub fn new(width: f64, title: &str) -> Self {
        let mut picture = Self { width, title: title.into(), shapes: String::new() };
        picture.words("bold", 16.0, 26.0, title);
        picture
    }

    /// Adds a box: left, top, width, height. `says` is shown where the pointer rests on it.
    pub fn bar(&mut self, class: &str, [x, y, width, height]: [f64; 4], says: &str) {
        let says = escaped(says);
        let _ = writeln!(
            self.shapes,
            r#"<rect class="{class}" x="{x:.1}" y="{y:.1}" width="{:.1}" height="{height:.1}" rx="2"><title>{says}</title></rect>"#,
            width.max(1.0)
        );
    }

    /// Adds a line from one point to another.
    pub fn line(&mut self, class: &str, [x1, y1, x2, y2]: [f64; 4]) {
        let _ = writeln!(self.shapes, r#"<line class="{class}" x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}"/>"#);
    }

    /// Adds words, whose base begins here unless the class says otherwise.
    pub fn words(&mut self, class: &str, x: f64, y: f64, words: &str) {
        let _ = writeln!(self.shapes, r#"<text class="{class}" x="{x:.1}" y="{y:.1}">{}</text>"#, escaped(words));
    }

    /// The file of a picture of this height. `tells` says in words what it shows.
    pub fn file(&self, height: f64, tells: &str) -> String {
        let Self { width, title, shapes } = self;
        let (title, tells) = (escaped(title), escaped(tells));
        let (right, bottom) = (width - 1.0, height - 1.0);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" role=\"img\" \
             aria-labelledby=\"title tells\" font-family=\"system-ui,sans-serif\" font-size=\"13\">\n<title id=\"title\">{title}</title>\n\
             <desc id=\"tells\">{tells}</desc>\n<style>{LOOK}</style>\n\
             <rect class=\"panel\" x=\".5\" y=\".5\" width=\"{right}\" height=\"{bottom}\" rx=\"6\"/>\n{shapes}</svg>\n"
        )
    }
}

fn escaped(words: &str) -> String {
    visible(words).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_says_what_it_shows_and_has_a_look_for_light_and_for_dark() {
        let mut picture = Picture::new(300.0, "Who led");
        picture.bar("red", [10.0, 40.0, 0.0, 20.0], "a < b & c");

        let file = picture.file(80.0, "red led, then nobody");

        for part in [
            "<title id=\"title\">Who led</title>",
            "<desc id=\"tells\">red led, then nobody</desc>",
            "viewBox=\"0 0 300 80\"",
            "prefers-color-scheme:dark",
            "width=\"1.0\" height=\"20.0\" rx=\"2\"><title>a &lt; b &amp; c</title>",
        ] {
            assert!(file.contains(part), "{part} in {file}");
        }
    }
}
