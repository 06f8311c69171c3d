// A line between two parts that moves with the pointer or the arrow keys: the part below it gets the room that it leaves.

const LEAST = 60
const STEP = 24

interface DividerProps {
  label: string
  /** Height of the part below, px. */
  size: number
  onSize: (size: number) => void
}

export function Divider({ label, size, onSize }: DividerProps) {
  const most = () => Math.max(LEAST, window.innerHeight - 260)
  const set = (next: number) => onSize(Math.round(Math.max(LEAST, Math.min(most(), next))))
  return (
    // biome-ignore lint/a11y/useSemanticElements: a rule cannot be moved
    <div
      class="divider"
      role="separator"
      tabIndex={0}
      aria-orientation="horizontal"
      aria-label={label}
      aria-valuenow={size}
      aria-valuemin={LEAST}
      aria-valuemax={most()}
      onPointerDown={(event) => {
        const from = event.clientY
        const box = event.currentTarget
        box.setPointerCapture(event.pointerId)
        const moved = (next: PointerEvent) => set(size + from - next.clientY)
        const over = () => box.removeEventListener('pointermove', moved)
        box.addEventListener('pointermove', moved)
        box.addEventListener('lostpointercapture', over, { once: true })
        event.preventDefault()
      }}
      onKeyDown={(event) => {
        const by = { ArrowUp: STEP, ArrowDown: -STEP }[event.key]
        if (!by) return
        set(size + by)
        event.preventDefault()
      }}
    />
  )
}
