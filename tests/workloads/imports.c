/* Shared by the tests of importers. */
#include "imports.h"

#include "import.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

ty_workload *import_shared(const char *file, ty_import_report *report)
{
    char path[512];
    ty_workload *w = NULL;
    ty_error error = {0};

    snprintf(path, sizeof path, MEASURED_DATA "%s", file);
    if (!ty_file_exists(path)) {
        cr_skip_test("%s is not here", path);
        return NULL;
    }
    cr_assert_eq(ty_workload_import(path, NULL, &w, report, &error), TY_OK, "%s", error.message);
    cr_assert_eq(ty_workload_check(w, file, &error), TY_OK, "%s", error.message);
    return w;
}

/* Copies exactly the content and a NUL, so that a sanitizer detects any read beyond it. */
static ty_status import(const char *path, const void *bytes, size_t length, ty_workload **out,
                        ty_import_report *report, ty_error *error)
{
    char *copy = malloc(length + 1);
    ty_status status;

    cr_assert_not_null(copy);
    memcpy(copy, bytes, length);
    copy[length] = '\0';
    status = ty_import_bytes(path, copy, length, NULL, out, report, error);
    free(copy);
    return status;
}

ty_workload *import_good(const char *path, const void *bytes, size_t length,
                         ty_import_report *report)
{
    ty_workload *w = NULL;
    ty_error error = {0};

    cr_assert_eq(import(path, bytes, length, &w, report, &error), TY_OK, "%s: %s", path,
                 error.message);
    cr_assert_eq(ty_workload_check(w, path, &error), TY_OK, "%s", error.message);
    return w;
}

void import_bad(const char *path, const void *bytes, size_t length, ty_status status,
                const char *message)
{
    ty_workload *w = NULL;
    ty_error error = {0};
    ty_status found = import(path, bytes, length, &w, NULL, &error);

    cr_assert_eq(found, status, "status %d: %s, expected %s", found, error.message, message);
    cr_assert(strstr(error.message, message) != NULL, "%s, expected %s", error.message, message);
    cr_assert_null(w);
}

void import_prefixes(const char *path, const void *bytes, size_t length)
{
    for (size_t n = 0; n < length; n++) {
        ty_workload *w = NULL;
        ty_error error = {0};
        ty_status status = import(path, bytes, n, &w, NULL, &error);
        cr_assert((status == TY_OK) == (w != NULL), "%zu bytes", n);
        cr_assert(status == TY_OK || error.message[0] != '\0', "%zu bytes", n);
        ty_workload_free(w);
    }
}

void import_without_memory(const char *path, const void *bytes, size_t length)
{
    ty_status status = TY_ENOMEM;
    long n = 0;

    while (status != TY_OK) {
        ty_workload *w = NULL;
        ty_error error = {0};
        ty_memory_fail_after(++n);
        status = import(path, bytes, length, &w, NULL, &error);
        ty_memory_fail_after(0);
        cr_assert(status == TY_OK || status == TY_ENOMEM, "allocation %ld: status %d: %s", n,
                  status, error.message);
        ty_workload_free(w);
        cr_assert_lt(n, 100000);
    }
    cr_assert_gt(n, 5);
}

bool report_has_note(const ty_import_report *report, const char *text)
{
    for (uint32_t i = 0; i < report->note_count; i++)
        if (strstr(report->notes[i], text) != NULL)
            return true;
    return false;
}
