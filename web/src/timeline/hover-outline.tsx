// An outline around the slice under the pointer: an element over the canvas, so that pointing paints no picture.

import type { Signal } from '@preact/signals'
import type { Hover } from './controller'
import { STICKY } from './layout'
import { GUTTER } from './painter'

export function HoverOutline({ hover }: { hover: Signal<Hover | null> }) {
  const box = hover.value?.box
  if (!hover.value || !box) return null
  const left = Math.max(GUTTER, box.x)
  const top = Math.max(STICKY, box.y)
  const width = Math.min(hover.value.width, box.x + box.width) - left
  const height = Math.min(hover.value.height, box.y + box.height) - top
  return (
    <div
      class="hover-outline"
      style={{ transform: `translate(${left}px, ${top}px)`, width: `${width}px`, height: `${height}px` }}
    />
  )
}
