/* Folders and files of a run, removed at its end or, after a kill, by the next start. */
#define _GNU_SOURCE /* mkostemp */
#include "run_folder.h"
#include "ty_study.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define NAME "trainyard"

static const char random_part[] = "-XXXXXX"; /* of mkdtemp */

static void scratch_name(char *path, size_t room, const char *name)
{
    const char *temporary = getenv("TMPDIR");
    bool is_set = temporary != NULL && temporary[0] != '\0';

    snprintf(path, room, "%s/%s%s", is_set ? temporary : "/tmp", name, random_part);
}

static bool is_dots(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

/* Removes the contents of an open folder and closes it. Links are removed, not followed. */
static void contents_remove(int folder)
{
    DIR *opened = fdopendir(folder);
    const struct dirent *entry;

    if (opened == NULL) {
        close(folder);
        return;
    }
    while ((entry = readdir(opened)) != NULL) {
        int below;
        if (is_dots(entry->d_name) || unlinkat(dirfd(opened), entry->d_name, 0) == 0)
            continue;
        below =
            openat(dirfd(opened), entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (below >= 0)
            contents_remove(below);
        (void)unlinkat(dirfd(opened), entry->d_name, AT_REMOVEDIR);
    }
    closedir(opened);
}

static void folder_remove(const char *folder)
{
    const int opened = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (opened >= 0)
        contents_remove(opened);
    rmdir(folder);
}

/* Opens and locks a file or folder until this process ends; -1 if another process has the lock, or
 * if it is not ours: only their owner may enter folders of runs. */
static int lock(int at, const char *name, bool is_folder)
{
    struct stat found;
    const int file = openat(
        at, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | (is_folder ? O_DIRECTORY : 0));

    if (file < 0)
        return -1;
    if (fstat(file, &found) == 0 && found.st_uid == geteuid() &&
        (is_folder ? (found.st_mode & 07777) == 0700 : S_ISREG(found.st_mode)) &&
        flock(file, LOCK_EX | LOCK_NB) == 0)
        return file;
    close(file);
    return -1;
}

static double age_s(int file)
{
    struct stat found;

    return fstat(file, &found) == 0 ? difftime(time(NULL), found.st_mtime) : 0;
}

static bool begins_with(const char *name, const char *start)
{
    return strncmp(name, start, strlen(start)) == 0;
}

/* Whether a folder only contains files of runs: ours, and Open MPI's sessions and segments. A
 * user's folder may be called trainyard-backup. */
static bool is_of_a_run(int folder)
{
    static const char *const starts[] = {"job.json",       TY_WORKER_BEGUN,
                                         TY_WORKER_SAID,   TY_WORKER_DIVERGED,
                                         TY_WORKER_KEPT,   TY_RUN_CHECKPOINT,
                                         ".trainyard-",    "ompi.",
                                         "prte",           "pmix",
                                         "vader_segment.", "sm_segment."};
    const int again = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *opened = again >= 0 ? fdopendir(again) : NULL;
    const struct dirent *entry;
    bool is_ours = opened != NULL;

    while (is_ours && (entry = readdir(opened)) != NULL) {
        is_ours = is_dots(entry->d_name);
        for (size_t i = 0; !is_ours && i < sizeof starts / sizeof starts[0]; i++)
            is_ours = begins_with(entry->d_name, starts[i]);
    }
    if (opened != NULL)
        closedir(opened);
    else if (again >= 0)
        close(again);
    return is_ours;
}

/* Removes leftovers of killed runs, which no process locks. A folder being created is a second old.
 * Files count after a day, as a file renamed to such a name has no lock. */
static void dead_remove(const char *above)
{
    static const char *const files[] = {NAME "-run", NAME "-profile", NAME "-calibrate",
                                        NAME "-samples", NAME "-trial"};
    const double folder_age_s = 60, file_age_s = 86400;
    const struct dirent *entry;
    DIR *opened = opendir(above);

    while (opened != NULL && (entry = readdir(opened)) != NULL) {
        const size_t length = strlen(entry->d_name), random = sizeof random_part - 1;
        char path[2 * PATH_MAX];
        int held;
        if (length <= random || !begins_with(entry->d_name, NAME "-"))
            continue;
        if (length == strlen(NAME) + random) {
            held = lock(dirfd(opened), entry->d_name, true);
            if (held >= 0 && age_s(held) > folder_age_s && is_of_a_run(held)) {
                snprintf(path, sizeof path, "%s/%s", above, entry->d_name);
                folder_remove(path);
            }
            if (held >= 0)
                close(held);
        }
        for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
            if (length != strlen(files[i]) + random || !begins_with(entry->d_name, files[i]))
                continue;
            held = lock(dirfd(opened), entry->d_name, false);
            if (held >= 0 && age_s(held) > file_age_s)
                (void)unlinkat(dirfd(opened), entry->d_name, 0);
            if (held >= 0)
                close(held);
        }
    }
    if (opened != NULL)
        closedir(opened);
}

static void dead_beside_remove(const char *path)
{
    char beside[PATH_MAX];

    snprintf(beside, sizeof beside, "%s", path);
    dead_remove(dirname(beside));
}

ty_status ty_run_folder_make(char folder[PATH_MAX], int *held, ty_error *error)
{
    scratch_name(folder, PATH_MAX, NAME);
    dead_beside_remove(folder);
    if (mkdtemp(folder) == NULL)
        return ty_fail(error, TY_EIO, "%s: %s", folder, strerror(errno));
    *held = lock(AT_FDCWD, folder, true);
    return TY_OK;
}

int ty_run_segments_make(char folder[PATH_MAX])
{
    snprintf(folder, PATH_MAX, "/dev/shm/" NAME "%s", random_part);
    dead_beside_remove(folder);
    if (mkdtemp(folder) == NULL) {
        folder[0] = '\0';
        return -1;
    }
    return lock(AT_FDCWD, folder, true);
}

void ty_run_folder_remove(const char *folder, int held)
{
    if (folder[0] != '\0')
        folder_remove(folder);
    if (held >= 0)
        close(held);
}

/* Locked until this process ends. */
ty_status ty_scratch_file(const char *name, char *path, size_t room, ty_error *error)
{
    int file;

    scratch_name(path, room, name);
    file = mkostemp(path, O_CLOEXEC);
    if (file < 0) {
        ty_fail(error, TY_EIO, "%s: %s", path, strerror(errno));
        path[0] = '\0';
        return TY_EIO;
    }
    if (flock(file, LOCK_EX | LOCK_NB) != 0)
        close(file);
    return TY_OK;
}
