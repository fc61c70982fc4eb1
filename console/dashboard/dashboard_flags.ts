/**
 * The flags of a dashboard.
 *
 * @module
 */

/** Where it is served. */
const PORT = {
  kind: "integer",
  value: "PORT",
  minimum: 0,
  maximum: 65_535,
  default: 0,
} as const;

/** Those of `troupe train`. */
export const DASHBOARD_FLAGS = {
  dashboard: {
    kind: "switch",
    help: "a page that shows the run as it goes, on this machine alone",
  },
  "dashboard-port": { ...PORT, help: "where that page is served; 0: any port that is free" },
  "dashboard-stay": { kind: "switch", help: "serve it after the end, too, until Ctrl-C" },
} as const;

/** Those of `troupe dashboard`. */
export const DASHBOARD_COMMAND_FLAGS = {
  port: { ...PORT, help: "where the page is served; 0: any port that is free" },
} as const;
