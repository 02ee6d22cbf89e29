/* The user's cache: a private folder, or none. */
#include "cache.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const char unfinished[] = ".new-"; /* followed by the process id */

struct ty_cache {
    int folder;        /* descriptor; all access to its files goes through it */
    char name[256];    /* of the file, in the folder */
    char at[PATH_MAX]; /* of the file, through the open folder */
    char *shown;       /* of the file, for messages */
};

/* $XDG_CACHE_HOME/trainyard, or ~/.cache/trainyard in the home of the environment or of the user
 * database. No other place: a shared folder is no cache. */
static ty_status folder_path(char **out, ty_error *error)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    const struct passwd *user;
    ty_text path = {0};
    ty_status status;

    if (cache != NULL && cache[0] == '/') {
        ty_text_addf(&path, "%s/trainyard", cache);
    } else {
        if (home == NULL || home[0] != '/')
            home = (user = getpwuid(geteuid())) != NULL ? user->pw_dir : NULL;
        if (home == NULL || home[0] != '/')
            return ty_fail(error, TY_EIO, "there is no home folder (HOME)");
        ty_text_addf(&path, "%s/.cache/trainyard", home);
    }
    status = ty_text_take(&path, out, error);
    ty_text_clear(&path);
    return status;
}

/* Creates the last folder for its owner only; it must not be a symbolic link. */
static ty_status folder_open(const char *path, int *out, ty_error *error)
{
    struct stat found;
    char *above = ty_strdup(path), *slash;
    int folder;
    ty_status status = TY_OK;

    TY_TRY(ty_check_memory(above != NULL, error));
    slash = strrchr(above, '/');
    if (slash != NULL && slash != above) {
        *slash = '\0';
        status = ty_directory_make(above, error);
    }
    ty_free(above);
    if (status != TY_OK)
        return status;
    if (mkdir(path, 0700) != 0 && errno != EEXIST)
        return ty_fail(error, TY_EIO, "%s: %s", path, strerror(errno));
    folder = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder < 0)
        return ty_fail(error, TY_EIO, "%s: %s", path,
                       errno == ELOOP || errno == ENOTDIR ? "found no folder, expected one"
                                                          : strerror(errno));
    if (fstat(folder, &found) != 0)
        status = ty_fail(error, TY_EIO, "%s: %s", path, strerror(errno));
    else if (found.st_uid != geteuid())
        status = ty_fail(error, TY_EIO, "%s: found a folder of user %u, expected one of user %u",
                         path, (unsigned)found.st_uid, (unsigned)geteuid());
    else if ((found.st_mode & S_IWOTH) != 0)
        status = ty_fail(error, TY_EIO, "%s: found a folder that all may write to", path);
    if (status == TY_OK)
        *out = folder;
    else
        close(folder);
    return status;
}

void ty_cache_close(ty_cache *cache)
{
    if (cache == NULL)
        return;
    close(cache->folder);
    ty_free(cache->shown);
    ty_free(cache);
}

void ty_cache_word(const char *word, char *out, size_t room)
{
    size_t i;

    for (i = 0; word[i] != '\0' && i + 1 < room; i++)
        out[i] = isalnum((unsigned char)word[i]) || (i > 0 && strchr("._-", word[i]) != NULL)
                     ? word[i]
                     : '_';
    out[i] = '\0';
}

ty_status ty_cache_open(const char *name, ty_cache **out, ty_error *error)
{
    ty_cache *cache = ty_alloc(1, sizeof *cache);
    char *path = NULL;
    ty_text shown = {0};
    ty_status status;

    TY_TRY(ty_check_memory(cache != NULL, error));
    cache->folder = -1;
    TY_CHECK(folder_path(&path, error), status, cleanup);
    TY_CHECK(folder_open(path, &cache->folder, error), status, cleanup);
    snprintf(cache->name, sizeof cache->name, "%s", name);
    snprintf(cache->at, sizeof cache->at, "/proc/self/fd/%d/%s", cache->folder, cache->name);
    ty_text_addf(&shown, "%s/%s", path, cache->name);
    TY_CHECK(ty_text_take(&shown, &cache->shown, error), status, cleanup);
    *out = cache;
    cache = NULL;

cleanup:
    ty_free(path);
    if (cache != NULL && cache->folder < 0)
        ty_free(cache);
    else
        ty_cache_close(cache);
    return status;
}

const char *ty_cache_shown(const ty_cache *cache)
{
    return cache->shown;
}

ty_status ty_cache_load(const ty_cache *cache, ty_profile **out, ty_error *error)
{
    struct stat found;

    *out = NULL;
    if (fstatat(cache->folder, cache->name, &found, AT_SYMLINK_NOFOLLOW) != 0)
        return errno == ENOENT ? TY_OK
                               : ty_fail(error, TY_EIO, "%s: %s", cache->shown, strerror(errno));
    if (!S_ISREG(found.st_mode))
        return TY_OK; /* no cached file */
    if (faccessat(cache->folder, cache->name, R_OK, 0) != 0)
        return ty_fail(error, TY_EIO, "%s: %s", cache->shown, strerror(errno));
    /* An unreadable cache is measured again, without an error. */
    if (ty_profile_load(cache->at, out, error) != TY_OK)
        *out = NULL;
    return TY_OK;
}

/* Removes unfinished files of killed processes; a file in progress is only seconds old.
 */
static void remove_unfinished(const ty_cache *cache)
{
    const double least_age_s = 3600;
    const int again = openat(cache->folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *opened = again >= 0 ? fdopendir(again) : NULL;
    const struct dirent *entry;
    struct stat found;

    while (opened != NULL && (entry = readdir(opened)) != NULL)
        if ((strncmp(entry->d_name, unfinished, sizeof unfinished - 1) == 0 ||
             strncmp(entry->d_name, ".trainyard-", 11) == 0) && /* of ty_file_write */
            fstatat(cache->folder, entry->d_name, &found, AT_SYMLINK_NOFOLLOW) == 0 &&
            difftime(time(NULL), found.st_mtime) > least_age_s)
            (void)unlinkat(cache->folder, entry->d_name, 0);
    if (opened != NULL)
        closedir(opened);
    else if (again >= 0)
        close(again);
}

/* Replaces any existing file or link of that name, without following it. */
ty_status ty_cache_keep(const ty_cache *cache, const ty_profile *profile, ty_error *error)
{
    char name[64], at[PATH_MAX];
    ty_error trouble = {0};
    ty_status status;

    remove_unfinished(cache);
    snprintf(name, sizeof name, "%s%ld", unfinished, (long)getpid());
    snprintf(at, sizeof at, "/proc/self/fd/%d/%s", cache->folder, name);
    (void)unlinkat(cache->folder, name, 0);
    status = ty_profile_save(profile, at, &trouble);
    if (status != TY_OK) { /* the message has the final name of the file */
        size_t own = strncmp(trouble.message, at, strlen(at)) == 0 ? strlen(at) : 0;
        return ty_fail(error, status, "%.150s%s%s", cache->shown, own > 0 ? "" : ": ",
                       trouble.message + own);
    }
    if (renameat(cache->folder, name, cache->folder, cache->name) != 0) {
        status = ty_fail(error, TY_EIO, "%s: %s", cache->shown, strerror(errno));
        (void)unlinkat(cache->folder, name, 0);
    }
    return status;
}
