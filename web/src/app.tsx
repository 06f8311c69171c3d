// The frame around the views: navigation, theme, failures.

import { signal } from '@preact/signals'
import { useEffect } from 'preact/hooks'
import { failure } from './data/load'
import type { PageData } from './data/report'
import { clean } from './format'
import { hashOf, route, type View } from './route'
import { Calls } from './views/calls'
import { Compare } from './views/compare'
import { helps } from './views/findings'
import { Overview } from './views/overview'
import { Predicted } from './views/predicted'
import { Tables } from './views/tables'
import { TimelineView } from './views/timeline'

const WORDS: Record<View, string> = {
  overview: 'Overview',
  timeline: 'Timeline',
  calls: 'Calls',
  tables: 'Tables',
  predicted: 'Predicted',
  compare: 'Compared',
}

/** Views that show a finding, if one is chosen. */
const KEEPS_FINDING: View[] = ['overview', 'timeline', 'predicted']

type Theme = 'auto' | 'light' | 'dark'
const NEXT: Record<Theme, Theme> = { auto: 'light', light: 'dark', dark: 'auto' }

export const theme = signal<Theme>('auto')
/** Whether the page is dark now, whoever decided it. */
export const dark = signal(false)

export function App({ data }: { data: PageData }) {
  const at = route.value
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
        <nav aria-label="Views">
          {(Object.keys(WORDS) as View[])
            .filter((view) => view !== 'compare' || data.compared)
            .filter((view) => view !== 'predicted' || data.report.findings.some(helps))
            .map((view) => (
              <a
                key={view}
                href={hashOf({ view, finding: KEEPS_FINDING.includes(view) ? at.finding : '' })}
                aria-current={at.view === view ? 'page' : undefined}
              >
                {WORDS[view]}
              </a>
            ))}
        </nav>
        <span class="file" title={clean(data.report.source.path)}>
          <bdi>{clean(data.report.source.path.split(/[/\\]/).pop() ?? '', 60)}</bdi>
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
      {failure.value && (
        <p class="failure" role="alert">
          {clean(failure.value, 500)}
        </p>
      )}
      {at.view === 'overview' && <Overview report={data.report} facts={data.overview} finding={at.finding} />}
      {at.view === 'timeline' && <TimelineView report={data.report} server={data.server} />}
      {at.view === 'calls' && <Calls server={data.server} />}
      {at.view === 'predicted' && (
        <Predicted findings={data.report.findings} finding={at.finding} server={data.server} />
      )}
      {at.view === 'compare' && data.compared && <Compare />}
      {at.view === 'tables' && <Tables table={at.table} server={data.server} />}
    </>
  )
}

function skip(): void {
  const main = document.getElementById('main')
  main?.setAttribute('tabindex', '-1')
  main?.focus()
}
