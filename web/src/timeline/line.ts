// One lane's row as one line of pixels. The cost depends on the width of the screen, not on the number of slices: where
// many slices share a pixel they are skipped by binary search, and the pixel shows the longest of them, as dark as the
// pixel's time is covered.

import type { Slices } from '../data/timeline'
import { halfway, LEVELS, type Palette } from './palette'

export interface Label {
  x: number
  width: number
  slice: number
}

export interface Line {
  pixels: Uint32Array
  patterns: Uint8Array
  patterned: boolean
  labels: Label[]
}

export const lineOf = (width: number): Line => ({
  pixels: new Uint32Array(width),
  patterns: new Uint8Array(width),
  patterned: false,
  labels: [],
})

export interface Span {
  first: number
  end: number
}

/**
 * Fills `line` with the slices of `row` between two times.
 *
 * @param colourOf colour index of a slice.
 * @param labelFrom slices at least this wide get a label.
 * @param patternAll whether pixels that several slices share show a pattern too.
 */
export function drawLine(
  line: Line,
  slices: Slices,
  row: Span,
  from: number,
  to: number,
  palette: Palette,
  colourOf: (slice: number) => number,
  labelFrom: number,
  patternAll = false,
): void {
  const { pixels, patterns } = line
  const width = pixels.length
  pixels.fill(palette.background)
  line.labels.length = 0
  line.patterned = false
  if (row.end <= row.first || to <= from) return
  const scale = width / (to - from)
  const pixel = 1 / scale
  const { start, duration, before } = slices
  // One slice earlier may still be open.
  let i = Math.max(row.first, slices.lowerBound(row.first, row.end, from) - 1)
  while (i < row.end) {
    const begin = start[i]
    if (begin >= to) break
    const left = (begin - from) * scale
    const right = (begin + duration[i] - from) * scale
    if (right - left >= 1) {
      if (right > 0) {
        const a = Math.max(0, Math.floor(left))
        const b = Math.min(width, Math.max(a + 1, Math.round(right)))
        const colour = colourOf(i)
        const value = palette.pixels[colour * LEVELS + LEVELS - 1]
        pixels.fill(value, a, b)
        if (palette.pattern[colour]) {
          patterns.fill(palette.pattern[colour], a, b)
          line.patterned = true
        } else patterns.fill(0, a, b)
        // A pale left edge keeps neighbours of one colour apart.
        if (b - a >= 4 && left >= 0) pixels[a] = halfway(value, palette.background)
        if (b - a >= labelFrom) line.labels.push({ x: a, width: b - a, slice: i })
      }
      i++
      continue
    }
    // Pixels start at multiples of their length in time, so that a pan by whole pixels changes nothing else.
    const until = Math.max(begin + pixel * 0.5, (Math.floor(begin / pixel) + 1) * pixel)
    let next = slices.gallop(i, row.end, until)
    // The last one that begins in this pixel may reach far beyond it: it is drawn on its own.
    if (next - 1 > i && duration[next - 1] * scale >= 1) next--
    const x = Math.floor(left)
    if (x >= 0 && x < width) {
      const longest = next - i > 1 ? slices.longest(i, next) : i
      const covered = Math.min(1, (before[next] - before[i]) / pixel)
      const level = Math.min(LEVELS - 1, Math.floor(covered * LEVELS))
      const colour = colourOf(longest)
      pixels[x] = palette.pixels[colour * LEVELS + level]
      patterns[x] = patternAll ? palette.pattern[colour] : 0
      line.patterned ||= patterns[x] > 0
    }
    i = Math.max(next, i + 1)
  }
}

/** Copies a line into `height` lines of a picture, patterns applied. */
export function stamp(
  picture: Uint32Array,
  pictureWidth: number,
  left: number,
  top: number,
  height: number,
  line: Line,
  palette: Palette,
  clipTop: number,
  clipBottom: number,
): void {
  const { pixels, patterns } = line
  for (let k = 0; k < height; k++) {
    const y = top + k
    if (y < clipTop || y >= clipBottom) continue
    const at = y * pictureWidth + left
    picture.set(pixels, at)
    if (!line.patterned) continue
    for (let x = 0; x < pixels.length; x++) {
      const pattern = patterns[x]
      if (pattern && pixels[x] !== palette.background && isPale(pattern, x, y))
        picture[at + x] = halfway(pixels[x], palette.background)
    }
  }
}

/** Whether a pattern leaves a pixel pale. */
export function isPale(pattern: number, x: number, y: number): boolean {
  switch (pattern) {
    case 1:
      return (x + y) % 7 < 3
    case 2:
      return x % 6 < 3
    case 3:
      return (((x - y) % 7) + 7) % 7 < 5
    case 4:
      return y % 6 < 3
    default:
      return x % 5 > 1 || y % 5 > 1
  }
}
