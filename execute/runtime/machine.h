/* Names and versions of the host and the libraries, for runs and profiles. Internal to execute/. */
#ifndef TY_EXECUTE_MACHINE_H
#define TY_EXECUTE_MACHINE_H

#include "transport.h"

/** "hostname, processor model"; free with ty_free, as the others. */
ty_status ty_machine_name(char **out, ty_error *error) TY_MUST_CHECK;
/** "oneDNN 2.6.3, Open MPI v4.1.4", with ", shared memory" if ranks of a host use that instead of
 * MPI. */
ty_status ty_machine_versions(const ty_transport *transport, char **out,
                              ty_error *error) TY_MUST_CHECK;
/** The current time, "2024-05-31T12:00:00Z". */
ty_status ty_machine_date(char **out, ty_error *error) TY_MUST_CHECK;
/** Cores this process may use, and the host's memory. */
uint32_t ty_machine_cores(void);
uint64_t ty_machine_memory_bytes(void);
/** The largest resident set of this process so far. */
uint64_t ty_machine_peak_memory_bytes(void);

/** Equal on ranks whose ty_now_s is the same clock. */
typedef struct ty_boot_id {
    char text[64];
} ty_boot_id;
ty_boot_id ty_machine_boot(void);

#endif
