/* Shared by the tests of importers. */
#ifndef TY_TEST_IMPORTS_H
#define TY_TEST_IMPORTS_H

#include "ty_workloads.h"

#include <stddef.h>

#define MEASURED_DATA TY_SHARED_DATA "/workloads/"

/** Imports a file of ../shared/data; skips the test if that is absent. */
ty_workload *import_shared(const char *file, ty_import_report *report);

/** Imports bytes that must be good, or must fail with `status` and `message`. */
ty_workload *import_good(const char *path, const void *bytes, size_t length,
                         ty_import_report *report);
void import_bad(const char *path, const void *bytes, size_t length, ty_status status,
                const char *message);

/** Every prefix of valid bytes is imported, or refused with a message. */
void import_prefixes(const char *path, const void *bytes, size_t length);

/** Lets allocation n fail, for every n until the import succeeds: each time TY_ENOMEM and no leak.
 */
void import_without_memory(const char *path, const void *bytes, size_t length);

bool report_has_note(const ty_import_report *report, const char *text);

#endif
