// A picture that is too wide for a phone: there it keeps its size, and is moved sideways, also by keys.

import type { ComponentChildren } from 'preact'

export function Wide({ label, children }: { label: string; children: ComponentChildren }) {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: what can be moved sideways must be reachable by keys.
    <section class="picture" tabIndex={0} aria-label={label}>
      {children}
    </section>
  )
}
