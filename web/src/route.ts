// The address of a view: #view=timeline&finding=LAU101&t=1000-2000&slice=42 (ns). Every link in the page is such a hash.

import { signal } from '@preact/signals'

export const VIEWS = ['overview', 'timeline', 'calls', 'tables', 'predicted', 'compare'] as const
export type View = (typeof VIEWS)[number]

export interface Route {
  view: View
  finding: string
  range: [number, number] | null
  /** What is selected: a slice of the page, or an event of the server; -1 for nothing. */
  slice: number
  table: string
  search: string
}

const EMPTY: Route = { view: 'overview', finding: '', range: null, slice: -1, table: '', search: '' }

/** Anything may stand in a hash: what is not understood is left out. */
export function parseRoute(hash: string): Route {
  const route: Route = { ...EMPTY }
  const params = new URLSearchParams(hash.replace(/^#/, ''))
  const view = params.get('view')
  const range = /^(\d{1,15})-(\d{1,15})$/.exec(params.get('t') ?? '')
  route.finding = /^[A-Z]{3}\d{3}$/.test(params.get('finding') ?? '') ? (params.get('finding') as string) : ''
  if (range && Number(range[1]) < Number(range[2])) route.range = [Number(range[1]), Number(range[2])]
  if (VIEWS.includes(view as View)) route.view = view as View
  else if (route.finding || route.range || params.has('slice')) route.view = 'timeline'
  if (/^\d{1,12}$/.test(params.get('slice') ?? '')) route.slice = Number(params.get('slice'))
  route.table = (params.get('table') ?? '').slice(0, 40)
  route.search = (params.get('search') ?? '').slice(0, 200)
  return route
}

export function hashOf(change: Partial<Route>): string {
  const route = { ...EMPTY, ...change }
  const params = new URLSearchParams()
  if (route.view !== 'overview' || route.finding || route.range) params.set('view', route.view)
  if (route.finding) params.set('finding', route.finding)
  if (route.range) params.set('t', route.range.map((time) => Math.max(0, Math.round(time))).join('-'))
  if (route.slice >= 0) params.set('slice', String(route.slice))
  if (route.table) params.set('table', route.table)
  if (route.search) params.set('search', route.search)
  return `#${params.toString()}`
}

export const route = signal<Route>(EMPTY)

/** The address as `route` was read from it, or as it was noted since. */
let known = ''

function read(): void {
  known = location.hash
  route.value = parseRoute(known)
}

export function listen(): void {
  read()
  addEventListener('hashchange', read)
}

export function go(change: Partial<Route>): void {
  location.hash = hashOf(change)
}

/**
 * Keeps the address in step with the view without a history entry per frame. Nothing is noted between a link that was
 * followed and its `hashchange`: the link would lead nowhere.
 */
export function note(change: Partial<Route>): void {
  if (location.hash !== known) return
  history.replaceState(null, '', hashOf(change))
  known = location.hash
}
