export function TimelineView(_: Record<string, unknown>) {
  return <main id="main" />
}
