//! Compressed layers. The first bytes say how one is compressed, whatever its description says: the
//! digest of the content is what counts.

use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use std::io::{self, BufRead, BufReader, Read};

const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// `0x184D2A50` to `0x184D2A5F`, little-endian: a frame without content, with which some begin.
const ZSTD_SKIPPABLE: [u8; 3] = [0x2a, 0x4d, 0x18];
/// What one zstd frame may make us remember: what `zstd --ultra -22` needs.
const ZSTD_WINDOW: u64 = 128 << 20;

/// Undoes gzip or zstd, or nothing.
pub(crate) fn decompressed<'a>(reader: impl Read + 'a) -> io::Result<Box<dyn Read + 'a>> {
    let mut reader = BufReader::with_capacity(64 << 10, reader);
    // The first read may be short; a layer that is shorter than this is no archive anyway.
    let begin = reader.fill_buf()?;
    Ok(if begin.starts_with(&GZIP) {
        Box::new(flate2::bufread::MultiGzDecoder::new(reader))
    } else if begin.starts_with(&ZSTD) || begin.get(1..4) == Some(&ZSTD_SKIPPABLE) && begin[0] & 0xf0 == 0x50
    {
        Box::new(Zstd::new(reader))
    } else {
        Box::new(reader)
    })
}

/// Frame after frame, to the end of the source.
struct Zstd<R> {
    source: R,
    decoder: FrameDecoder,
    /// Whether the decoder is within a frame.
    open: bool,
}

impl<R: BufRead> Zstd<R> {
    fn new(source: R) -> Self {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(ZSTD_WINDOW);
        let open = false;
        Self {
            source,
            decoder,
            open,
        }
    }

    /// Opens the next frame with content; `false` at the end.
    fn open_next(&mut self) -> io::Result<bool> {
        while !self.source.fill_buf()?.is_empty() {
            match self.decoder.init(&mut self.source) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    io::copy(&mut self.source.by_ref().take(length.into()), &mut io::sink())?;
                }
                Err(error) => return Err(io::Error::new(io::ErrorKind::InvalidData, error)),
            }
        }
        Ok(false)
    }

    /// Decodes until there is something to take or the frame is over.
    fn fill(&mut self) -> io::Result<()> {
        while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
            let one = BlockDecodingStrategy::UptoBlocks(1);
            let decoded = self.decoder.decode_blocks(&mut self.source, one);
            decoded.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        }
        Ok(())
    }
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            if self.open {
                self.fill()?;
                match self.decoder.read(buffer)? {
                    0 => self.open = false,
                    count => return Ok(count),
                }
            }
            self.open = self.open_next()?;
            if !self.open {
                return Ok(0);
            }
        }
    }
}
