// Colours as packed pixels. Every colour exists in LEVELS shades towards the background: that is how dense a stretch of
// many short slices is.

import { isDevice, KIND, type Timeline } from '../data/timeline'

export const LEVELS = 8

type Rgb = [number, number, number]

// Kernel families, in the order of the payload, and other kinds, for a light and a dark background.
const FAMILY: Record<string, string> = {
  communication: '#a855c9',
  attention: '#2b8a8f',
  gemm: '#2f9e6e',
  'gemm helper': '#79b99a',
  convolution: '#5b9f3c',
  layout: '#c08a5b',
  normalisation: '#5a86c5',
  softmax: '#5fa3c9',
  optimizer: '#7a74c9',
  foreach: '#8f8ad0',
  reduction: '#4f9bb0',
  pointwise: '#6d9fdb',
  'copy kernel': '#bfa04a',
  'embedding and indexing': '#9a8fb8',
  'sort and scan': '#a57fae',
  random: '#8fa36b',
  triton: '#3f8fd1',
  other: '#8b97a3',
}
const COPY = '#d69a1c'
const SET = '#b9a15c'
const ANNOTATION = '#3f9a94'
const OPERATORS = ['#7da7dc', '#8fb3df', '#86a8c9', '#93b9d9', '#7f9fd0', '#a1bde0']
const PYTHON = ['#c9c2b4', '#d2ccc0', '#bfb9ac']
const LAUNCH = '#e59a5c'
const API = '#e3bb8f'
const WAIT = '#d8685d'
const OTHER = '#b3bac2'

const CLASSES: Record<string, string> = {
  compute: '#2f9e6e',
  transfer: '#d69a1c',
  host: '#e0574a',
  communication: '#a855c9',
  dependency: '#4f86d9',
  unknown: '#9aa4af',
}

/** Patterns that keep classes and waits apart without colour: which pixels of a lane are pale. */
export const PATTERN = { NONE: 0, DIAGONAL: 1, VERTICAL: 2, BACKWARD: 3, HORIZONTAL: 4, DOTS: 5 }
const CLASS_PATTERN: Record<string, number> = {
  compute: PATTERN.NONE,
  transfer: PATTERN.DIAGONAL,
  host: PATTERN.BACKWARD,
  communication: PATTERN.VERTICAL,
  dependency: PATTERN.HORIZONTAL,
  unknown: PATTERN.DOTS,
}

export interface Palette {
  /** Packed pixels: index * LEVELS + level. */
  pixels: Uint32Array
  background: number
  /** Colour index of each name where it is device work, and where it is anything else. */
  ofWork: Uint8Array
  ofName: Uint8Array
  /** Colour index for calls that wait. */
  wait: number
  /** Pattern of each colour index. */
  pattern: Uint8Array
  /** Colour index of each time class. */
  ofClass: Uint8Array
}

export const INK = { light: '#1a2027', dark: '#e6eaee' }
export const BACKGROUND = { light: '#ffffff', dark: '#14181d' }

/** Colour of device work by kernel family, of copies and sets, and of the host. */
export function colourOf(kind: string): string {
  const more: Record<string, string> = { copy: COPY, set: SET, host: OPERATORS[0], waits: WAIT }
  return FAMILY[kind] ?? more[kind] ?? OTHER
}

/** The colours that a timeline uses, with what they stand for. */
export function colourKeys({ extra }: Timeline): { colour: string; what: string }[] {
  const kinds = new Set(extra.shown.kinds)
  const keys: { colour: string; what: string }[] = []
  const add = (there: boolean, colour: string, what: string) => there && keys.push({ colour, what })
  for (const family of extra.shown.families)
    add(true, FAMILY[extra.families[family]] ?? FAMILY.other, `kernels: ${extra.families[family] ?? 'other'}`)
  add(kinds.has(KIND.MEMCPY), COPY, 'copies')
  add(kinds.has(KIND.MEMSET), SET, 'sets')
  add(kinds.has(KIND.OPERATOR), OPERATORS[0], 'operators')
  add(kinds.has(KIND.PYTHON), PYTHON[0], 'Python')
  add(kinds.has(KIND.ANNOTATION) || kinds.has(KIND.GPU_ANNOTATION), ANNOTATION, 'annotations')
  add(kinds.has(KIND.RUNTIME) || kinds.has(KIND.DRIVER), LAUNCH, 'launches')
  add(kinds.has(KIND.RUNTIME) || kinds.has(KIND.DRIVER), API, 'other calls of the driver')
  add(extra.shown.waits, WAIT, 'waits for the device')
  return keys
}

export function paletteOf(timeline: Timeline, dark: boolean): Palette {
  const { extra, slices } = timeline
  const colours: string[] = []
  const patterns: number[] = []
  const add = (colour: string, pattern = PATTERN.NONE) => {
    patterns.push(pattern)
    return colours.push(colour) - 1
  }
  const family = extra.families.map((name) => add(FAMILY[name] ?? FAMILY.other))
  const copy = add(COPY, PATTERN.DIAGONAL)
  const set = add(SET, PATTERN.VERTICAL)
  const annotation = add(ANNOTATION)
  const operators = OPERATORS.map((colour) => add(colour))
  const python = PYTHON.map((colour) => add(colour))
  const launch = add(LAUNCH)
  const api = add(API)
  const other = add(OTHER)
  const wait = add(WAIT, PATTERN.BACKWARD)
  const ofClass = Uint8Array.from(extra.classes.map((name) => add(CLASSES[name] ?? OTHER, CLASS_PATTERN[name] ?? 0)))

  const hostColour = (kind: number, name: string): number => {
    switch (kind) {
      case KIND.ANNOTATION:
      case KIND.GPU_ANNOTATION:
        return annotation
      case KIND.OPERATOR:
        return operators[hash(name) % operators.length]
      case KIND.PYTHON:
        return python[hash(name) % python.length]
      case KIND.RUNTIME:
      case KIND.DRIVER:
        return /launch|memcpy|memset/i.test(name) ? launch : api
      case KIND.SYNC:
        return wait
      default:
        return other
    }
  }
  const ofWork = new Uint8Array(timeline.names.length).fill(other)
  const ofName = new Uint8Array(timeline.names.length).fill(other)
  const done = new Uint8Array(timeline.names.length * 2)
  const familyOfName = timeline.columns.name_family
  for (let i = 0; i < slices.count; i++) {
    const name = slices.name[i]
    const kind = slices.kind[i]
    const work = isDevice(kind)
    if (done[name * 2 + Number(work)]) continue
    done[name * 2 + Number(work)] = 1
    if (work)
      ofWork[name] = kind === KIND.KERNEL ? (family[familyOfName[name]] ?? other) : kind === KIND.MEMCPY ? copy : set
    else ofName[name] = hostColour(kind, timeline.names[name])
  }
  const back = rgb(dark ? BACKGROUND.dark : BACKGROUND.light)
  const pixels = new Uint32Array(colours.length * LEVELS)
  colours.forEach((colour, i) => {
    const full = dark ? mix(rgb(colour), [0, 0, 0], 0.16) : rgb(colour)
    for (let level = 0; level < LEVELS; level++)
      pixels[i * LEVELS + level] = packed(mix(back, full, 0.3 + (0.7 * (level + 1)) / LEVELS))
  })
  return { pixels, background: packed(back), ofWork, ofName, wait, pattern: Uint8Array.from(patterns), ofClass }
}

export function hash(text: string): number {
  let value = 2166136261
  for (let i = 0; i < text.length; i++) value = Math.imul(value ^ text.charCodeAt(i), 16777619)
  return value >>> 0
}

function rgb(hex: string): Rgb {
  const value = Number.parseInt(hex.slice(1), 16)
  return [value >> 16, (value >> 8) & 255, value & 255]
}

function mix(a: Rgb, b: Rgb, share: number): Rgb {
  return [0, 1, 2].map((i) => Math.round(a[i] + (b[i] - a[i]) * share)) as Rgb
}

/** Canvas pixels are little-endian RGBA on every machine that runs a browser today. */
const packed = ([r, g, b]: Rgb): number => ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0

export function halfway(a: number, b: number): number {
  return ((((a & 0xfefefe) >>> 1) + ((b & 0xfefefe) >>> 1)) | 0xff000000) >>> 0
}
