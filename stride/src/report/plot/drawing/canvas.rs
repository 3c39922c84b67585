//! A bitmap canvas with built-in fonts.

use noto_sans_mono_bitmap::{FontWeight, RasterHeight, RasterizedChar, get_raster, get_raster_width};
use plotters::prelude::{BitMapBackend, DrawingBackend};
use plotters_backend::text_anchor::{HPos, VPos};
use plotters_backend::{BackendColor, BackendCoord, BackendStyle, BackendTextStyle, DrawingErrorKind, FontTransform};

/// A replacement for the bitmap backend of plotters. That backend requires system fonts, whereas this canvas has
/// built-in glyphs of fixed sizes.
pub(super) struct Canvas<'a> {
    pixels: BitMapBackend<'a>,
}

type Outcome<'a> = Result<(), DrawingErrorKind<<Canvas<'a> as DrawingBackend>::ErrorType>>;

impl<'a> Canvas<'a> {
    /// Creates a canvas that draws into a buffer with three bytes per pixel.
    pub(super) fn new(pixels: &'a mut [u8], size: (u32, u32)) -> Self {
        Self { pixels: BitMapBackend::with_buffer(pixels, size) }
    }
}

impl<'a> DrawingBackend for Canvas<'a> {
    type ErrorType = <BitMapBackend<'a> as DrawingBackend>::ErrorType;

    fn get_size(&self) -> (u32, u32) {
        self.pixels.get_size()
    }

    fn ensure_prepared(&mut self) -> Outcome<'a> {
        self.pixels.ensure_prepared()
    }

    fn present(&mut self) -> Outcome<'a> {
        self.pixels.present()
    }

    fn draw_pixel(&mut self, point: BackendCoord, color: BackendColor) -> Outcome<'a> {
        self.pixels.draw_pixel(point, color)
    }

    fn draw_line<S: BackendStyle>(&mut self, from: BackendCoord, to: BackendCoord, style: &S) -> Outcome<'a> {
        self.pixels.draw_line(from, to, style)
    }

    fn draw_rect<S: BackendStyle>(
        &mut self,
        upper_left: BackendCoord,
        bottom_right: BackendCoord,
        style: &S,
        fill: bool,
    ) -> Outcome<'a> {
        self.pixels.draw_rect(upper_left, bottom_right, style, fill)
    }

    fn draw_text<S: BackendTextStyle>(&mut self, text: &str, style: &S, at: BackendCoord) -> Outcome<'a> {
        let height = height(style.size());
        let (width, tall) = extent(text, height);
        let anchor = style.anchor();
        let x = match anchor.h_pos {
            HPos::Left => 0,
            HPos::Center => -width / 2,
            HPos::Right => -width,
        };
        let y = match anchor.v_pos {
            VPos::Top => 0,
            VPos::Center => -tall / 2,
            VPos::Bottom => -tall,
        };
        let (transform, color) = (style.transform(), style.color());
        for (left, glyph) in (x..).step_by(advance(height)).zip(glyphs(text, height)) {
            for (top, row) in (y..).zip(glyph.rows()) {
                for (left, &light) in (left..).zip(row.iter()).filter(|(_, light)| **light > 0) {
                    let (dx, dy) = turned(&transform, left, top);
                    let color = BackendColor { alpha: color.alpha * f64::from(light) / 255.0, ..color };
                    self.draw_pixel((at.0 + dx, at.1 + dy), color)?;
                }
            }
        }
        Ok(())
    }

    fn estimate_text_size<S: BackendTextStyle>(
        &self,
        text: &str,
        style: &S,
    ) -> Result<(u32, u32), DrawingErrorKind<Self::ErrorType>> {
        let (width, tall) = extent(text, height(style.size()));
        Ok((width.unsigned_abs(), tall.unsigned_abs()))
    }
}

/// Returns the glyph size that is nearest to a size in pixels.
fn height(size: f64) -> RasterHeight {
    if size < 20.0 { RasterHeight::Size16 } else { RasterHeight::Size20 }
}

/// Returns the distance between the starts of two glyphs.
fn advance(height: RasterHeight) -> usize {
    get_raster_width(FontWeight::Regular, height)
}

/// Returns the width and height of a text.
fn extent(text: &str, height: RasterHeight) -> (i32, i32) {
    let pixels = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
    (pixels(text.chars().count() * advance(height)), pixels(height.val()))
}

/// Returns the glyphs of a text. Characters without a glyph become question marks.
fn glyphs(text: &str, height: RasterHeight) -> impl Iterator<Item = RasterizedChar> {
    let of = move |letter| get_raster(letter, FontWeight::Regular, height);
    text.chars().filter_map(move |letter| of(letter).or_else(|| of('?')))
}

/// Returns the position of a pixel relative to the anchor of a text, after the text has been rotated clockwise.
fn turned(transform: &FontTransform, x: i32, y: i32) -> (i32, i32) {
    match transform {
        FontTransform::None => (x, y),
        FontTransform::Rotate90 => (-y, x),
        FontTransform::Rotate180 => (-x, -y),
        FontTransform::Rotate270 => (y, -x),
    }
}
