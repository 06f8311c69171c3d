// The bar at the top of every page: what it is about, and its colours.

import { signal } from '@preact/signals'
import type { ComponentChildren } from 'preact'
import { useEffect } from 'preact/hooks'
import { clean } from '../format'

type Theme = 'auto' | 'light' | 'dark'
const NEXT: Record<Theme, Theme> = { auto: 'light', light: 'dark', dark: 'auto' }

const theme = signal<Theme>('auto')
/** Whether the page is dark now, whoever decided it. */
export const dark = signal(false)

export function Top({ file, children }: { file: string; children?: ComponentChildren }) {
  useEffect(() => {
    const query = matchMedia('(prefers-color-scheme: dark)')
    const apply = () => {
      dark.value = theme.value === 'dark' || (theme.value === 'auto' && query.matches)
      document.documentElement.dataset.theme = dark.value ? 'dark' : 'light'
    }
    apply()
    query.addEventListener('change', apply)
    const stop = theme.subscribe(apply)
    return () => {
      query.removeEventListener('change', apply)
      stop()
    }
  }, [])
  return (
    <>
      <button type="button" class="skip" onClick={skip}>
        Skip to the content
      </button>
      <header class="top">
        <span class="brand">lanewise</span>
        {children}
        <span class="file" title={clean(file)}>
          <bdi>{clean(file.split(/[/\\]/).pop() ?? '', 60)}</bdi>
        </span>
        <button
          type="button"
          onClick={() => {
            theme.value = NEXT[theme.value]
          }}
          aria-label={`Theme: ${theme.value}`}
          title={`Theme: ${theme.value === 'auto' ? 'as the system' : theme.value}`}
        >
          ◐ <span class="word">{theme.value === 'auto' ? 'Auto' : theme.value === 'light' ? 'Light' : 'Dark'}</span>
        </button>
      </header>
    </>
  )
}

function skip(): void {
  const main = document.getElementById('main')
  main?.setAttribute('tabindex', '-1')
  main?.focus()
}
