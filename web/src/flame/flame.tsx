// An icicle (or, upwards, a flame graph) on a canvas, with the keyboard as well as the mouse.

import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks'
import { characterWidth, clean, formatQuantity } from '../format'
import { dark } from '../parts/top'
import { hash } from '../timeline/palette'
import { type Box, depthOf } from './layout'

const ROW = 20
/** Rows kept in sight around the selected one. */
const MARGIN = 2
const FONT = '11.5px system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif'

// Hue of each kind of node; lightness tells neighbours apart, the label says the kind.
const HUES: Record<string, number> = {
  thread: 215,
  frame: 40,
  module: 170,
  annotation: 178,
  operator: 212,
  graph: 285,
  wait: 6,
  kernel: 148,
  copy: 38,
  set: 52,
  mark: 215,
}

interface Props {
  boxes: Box[]
  kinds: string[]
  type: string
  total: number
  label: string
  upward?: boolean
  match?: string
  selected: number
  onPick: (box: Box) => void
  onOpen: (box: Box) => void
}

export function Flame(props: Props) {
  const { boxes, kinds, type, total, label, upward, match, selected, onPick, onOpen } = props
  const canvas = useRef<HTMLCanvasElement>(null)
  const scroller = useRef<HTMLDivElement>(null)
  const [{ width, room }, setSize] = useState({ width: 0, room: 0 })
  const [scroll, setScroll] = useState(0)
  const [hover, setHover] = useState<{ box: Box; x: number; y: number } | null>(null)
  const depth = depthOf(boxes)
  const height = depth * ROW + 2
  const topOf = (box: Box) => (upward ? (depth - 1 - box.depth) * ROW : box.depth * ROW)
  // Only what is in sight is drawn: browsers draw nothing on a canvas of more than some 30,000 pixels.
  const seen = Math.min(height, room)
  const isDark = dark.value
  const needle = match?.toLowerCase() ?? ''
  const current = boxes[selected]

  useEffect(() => {
    const element = scroller.current
    if (!element) return
    const resize = new ResizeObserver(([entry]) => {
      const { width, height } = entry.contentRect
      setSize({ width: Math.floor(width), room: Math.ceil(height) })
    })
    resize.observe(element)
    return () => resize.disconnect()
  }, [])
  useLayoutEffect(() => {
    // The root is in sight first.
    if (scroller.current) scroller.current.scrollTop = upward ? height : 0
  }, [boxes, upward])
  useLayoutEffect(() => {
    const element = scroller.current
    if (!element || !current) return
    const top = topOf(current)
    const least = top + (1 + MARGIN) * ROW - element.clientHeight
    const most = top - MARGIN * ROW
    if (element.scrollTop < least) element.scrollTop = least
    else if (element.scrollTop > most) element.scrollTop = most
  }, [current])
  useEffect(() => {
    const element = canvas.current
    const context = element?.getContext('2d')
    if (!element || !context || width < 2) return
    const ratio = Math.min(2, devicePixelRatio || 1)
    element.width = width * ratio
    element.height = seen * ratio
    context.setTransform(ratio, 0, 0, ratio, 0, -scroll * ratio)
    context.font = FONT
    context.textBaseline = 'middle'
    const character = characterWidth(context)
    for (const box of boxes) {
      const x = box.from * width
      const w = (box.to - box.from) * width
      if (w < 0.4) continue
      const y = topOf(box)
      if (y + ROW < scroll || y > scroll + seen) continue
      const faint = needle !== '' && !box.label.toLowerCase().includes(needle)
      context.globalAlpha = faint ? 0.25 : 1
      const kind = kinds[box.kind] ?? 'mark'
      const shade = (hash(box.label) % 7) * 2
      context.fillStyle = box.change
        ? changeColour(box.change, isDark)
        : `hsl(${HUES[kind] ?? 215} ${isDark ? 34 : 52}% ${isDark ? 32 + shade / 2 : 72 + shade}%)`
      context.fillRect(x, y + 1, Math.max(0.5, w - 0.7), ROW - 2)
      const room = Math.floor((w - 8) / character)
      if (room < 2) continue
      const mark = box.change ? changeMark(box.change) : ''
      const text = mark + (box.detail ? `${box.label} (${box.detail})` : box.label)
      context.fillStyle = isDark ? '#eef2f5' : '#10151a'
      const cut = clean(text.length > room ? `${text.slice(0, room - 1)}…` : text, 500)
      context.fillText(cut, x + 4, y + ROW / 2 + 0.5, w - 6)
    }
    context.globalAlpha = 1
    if (current) {
      context.strokeStyle = isDark ? '#fff' : '#000'
      context.lineWidth = 2
      context.strokeRect(
        current.from * width + 1,
        topOf(current) + 1,
        Math.max(2, (current.to - current.from) * width - 2),
        ROW - 2,
      )
    }
  }, [boxes, width, seen, scroll, isDark, needle, current, upward])

  const boxAt = (event: MouseEvent): Box | null => {
    const row = Math.floor((event.offsetY + scroll) / ROW)
    const level = upward ? depth - 1 - row : row
    const x = event.offsetX / width
    return boxes.find((box) => box.depth === level && box.from <= x && x < box.to) ?? null
  }
  const key = (event: KeyboardEvent) => {
    const at = current ? neighbour(boxes, current, event.key, !!upward) : boxes[0]
    if (event.key === 'Enter' && current) onOpen(current)
    else if (event.key.startsWith('Arrow') && at) onPick(at)
    else return
    event.preventDefault()
  }
  return (
    <div class="flame">
      <div class="flame-rows" ref={scroller} onScroll={(event) => setScroll(event.currentTarget.scrollTop)}>
        <div style={{ height: `${height}px` }}>
          {/* biome-ignore lint/a11y/noInteractiveElementToNoninteractiveRole: a screen reader must hand the keys on */}
          <canvas
            ref={canvas}
            tabIndex={0}
            role="application"
            aria-label={`${label}. Arrow keys walk through the tree, Enter shows a node whole.`}
            style={{ height: `${seen}px` }}
            onMouseMove={(event) => {
              const box = boxAt(event)
              setHover(box && { box, x: event.offsetX, y: event.offsetY })
            }}
            onMouseLeave={() => setHover(null)}
            onClick={(event) => {
              const box = boxAt(event)
              if (box) onPick(box)
            }}
            onDblClick={(event) => {
              const box = boxAt(event)
              if (box) onOpen(box)
            }}
            onKeyDown={key}
          />
        </div>
      </div>
      {hover && (
        <div
          class="hover-card"
          style={{ left: `${Math.max(0, Math.min(hover.x + 12, width - 380))}px`, top: `${hover.y + 18}px` }}
        >
          <p class="slice-name">
            <bdi>{clean(hover.box.label, 240)}</bdi>
          </p>
          {hover.box.change && (
            <p>
              {formatQuantity(type, hover.box.change.a)} → {formatQuantity(type, hover.box.change.b)}
            </p>
          )}
          <p hidden={!!hover.box.change}>
            {formatQuantity(type, hover.box.value)}{' '}
            <span class="dim">
              {total > 0 && `(${formatQuantity('share', hover.box.value / total)})`} · {kinds[hover.box.kind]}
              {hover.box.detail && ` · ${clean(hover.box.detail, 80)}`}
            </span>
          </p>
        </div>
      )}
    </div>
  )
}

/** From blue (all of it vanished) over grey (no change) to red (all of it is new). */
function changeColour({ a, b }: { a: number; b: number }, isDark: boolean): string {
  const share = a + b > 0 ? (b - a) / (a + b) : 0
  const strength = Math.min(1, Math.abs(share) * 3)
  const light = isDark ? 30 + strength * 12 : 86 - strength * 22
  return `hsl(${share > 0 ? 8 : 212} ${Math.round(strength * (isDark ? 48 : 78))}% ${light}%)`
}

/** The same without colour. */
function changeMark({ a, b }: { a: number; b: number }): string {
  const share = a + b > 0 ? (b - a) / (a + b) : 0
  return share > 0.02 ? '▲ ' : share < -0.02 ? '▼ ' : ''
}

function neighbour(boxes: Box[], at: Box, key: string, upward: boolean): Box | undefined {
  const deeper = key === (upward ? 'ArrowUp' : 'ArrowDown')
  const outer = key === (upward ? 'ArrowDown' : 'ArrowUp')
  if (outer) return boxes.find((b) => b.depth === at.depth - 1 && b.from <= at.from + 1e-9 && b.to >= at.to - 1e-9)
  const level = boxes.filter((b) => b.depth === (deeper ? at.depth + 1 : at.depth)).sort((a, b) => a.from - b.from)
  if (deeper) return level.find((b) => b.from >= at.from - 1e-9 && b.to <= at.to + 1e-9)
  const i = level.indexOf(at)
  return level[i + (key === 'ArrowRight' ? 1 : -1)]
}
