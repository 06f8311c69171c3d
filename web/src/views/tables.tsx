export function Tables(_: Record<string, unknown>) {
  return <main id="main" />
}
