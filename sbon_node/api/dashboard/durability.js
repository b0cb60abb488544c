// Durability of operators, and their backups, in words.

import { span } from "./format.js";

/** The backup of a replicated operator; null for a local one. */
export function backupText(backup) {
  if (!backup) return null;
  const at = backup.node ? ` at ${backup.node}` : "";
  const batch = backup.batch === null ? "" : `, batch ${backup.batch}`;
  const age = backup.age_s === null ? "" : `, ${span(1000 * backup.age_s)} old`;
  const because = (reason) => (reason ? `: ${reason}` : "");
  const followed = backup.follows === null ? "" : backup.follows ? ", followed" : `, not followed${because(backup.follows_not)}`;
  const recovered = backup.recovered ? `; taken over ${backup.recovered}` : "";
  return `${backup.state}${at}${batch}${age}${because(backup.reason)}${followed}${recovered}`;
}
