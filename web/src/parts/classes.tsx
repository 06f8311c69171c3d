// The classes of device time: one look and one wording wherever they are shown. Readable without colour: each class has
// a pattern and a word of its own.

import { clean, formatQuantity } from '../format'

export const CLASS_WORDS: Record<string, { label: string; hint: string }> = {
  compute: { label: 'computes', hint: 'A kernel that is not communication runs.' },
  transfer: { label: 'copies', hint: 'A copy or set runs, or a host thread sits in a copy that blocks it.' },
  host: { label: 'waits for the host', hint: 'The next work has not been launched yet: Python is not ahead.' },
  communication: { label: 'communicates', hint: 'A communication kernel runs, and everything else is launched.' },
  dependency: { label: 'waits for other work', hint: 'Launched, and waiting for an event, a stream or the queue.' },
  unknown: { label: 'cannot be told', hint: 'Work from before the recording, or a stall of the profiler itself.' },
}

export const CLASS_ORDER = ['compute', 'transfer', 'communication', 'host', 'dependency', 'unknown']

export function ClassBar({ shares, label }: { shares: Record<string, number>; label: string }) {
  const total = Object.values(shares).reduce((sum, value) => sum + Math.max(0, value), 0) || 1
  const parts = CLASS_ORDER.filter((name) => (shares[name] ?? 0) > 0)
  const words = parts.map((name) => `${CLASS_WORDS[name].label} ${formatQuantity('share', shares[name] / total)}`)
  return (
    <div class="class-bar" role="img" aria-label={`${label}: ${words.join(', ')}`}>
      {parts.map((name) => (
        <span
          key={name}
          class={`class-part class-${name}`}
          style={{ flexGrow: Math.max(shares[name] / total, 0.004) }}
          title={`${CLASS_WORDS[name].label}: ${formatQuantity('share', shares[name] / total)}`}
        >
          {shares[name] / total > 0.09 && (
            <span class="class-text">{formatQuantity('share', shares[name] / total)}</span>
          )}
        </span>
      ))}
    </div>
  )
}

export function ClassLegend({ names }: { names: string[] }) {
  return (
    <ul class="legend">
      {CLASS_ORDER.filter((name) => names.includes(name)).map((name) => (
        <li key={name} title={CLASS_WORDS[name].hint}>
          <span class={`swatch class-${name}`} aria-hidden="true" /> {clean(CLASS_WORDS[name].label)}
        </li>
      ))}
    </ul>
  )
}
