/* Files read completely or replaced completely, and the location of Trainyard's data. */
#include "ty_base.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEFAULT_LIMIT ((uint64_t)1 << 30)
#define TEMPORARY_ATTEMPTS 1000
#define PIPE_PATIENCE_MS 20000

static ty_status read_all(int file, const char *name, uint64_t limit, char **bytes, size_t *length,
                          ty_error *error)
{
    size_t capacity = 65536, used = 0;
    char *data = ty_alloc(capacity + 1, 1), *grown;
    ty_status status = TY_OK;

    TY_TRY(ty_check_memory(data != NULL, error));
    for (;;) {
        ssize_t got = read(file, data + used, capacity - used);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            status = ty_fail(error, TY_EIO, "%s: %s", name, strerror(errno));
            goto cleanup;
        }
        if (got == 0)
            break;
        used += (size_t)got;
        if (used > limit) {
            status =
                ty_fail(error, TY_EPARSE, "%s: found more than %llu bytes, expected at most that",
                        name, (unsigned long long)limit);
            goto cleanup;
        }
        if (used == capacity) {
            capacity *= 2;
            if ((grown = ty_resize(data, capacity + 1, 1)) == NULL) {
                status = ty_fail(error, TY_ENOMEM, "%s: out of memory", name);
                goto cleanup;
            }
            data = grown;
        }
    }
    data[used] = '\0';
    *bytes = data;
    *length = used;
    data = NULL;

cleanup:
    ty_free(data);
    return status;
}

/* A named pipe may never have a writer; a pipe of a shell has one immediately. */
static ty_status wait_for_writer(int file, const char *path, ty_error *error)
{
    struct pollfd wait = {.fd = file, .events = POLLIN};
    struct stat found;

    if (fstat(file, &found) != 0)
        return ty_fail(error, TY_EIO, "%s: %s", path, strerror(errno));
    if (S_ISFIFO(found.st_mode) && poll(&wait, 1, PIPE_PATIENCE_MS) == 0)
        return ty_fail(error, TY_EIO, "%s: found a pipe that nothing came from within %d s", path,
                       PIPE_PATIENCE_MS / 1000);
    (void)fcntl(file, F_SETFL, fcntl(file, F_GETFL) & ~O_NONBLOCK);
    return TY_OK;
}

ty_status ty_file_check_plain(const char *path, ty_error *error)
{
    struct stat found;

    if (stat(path, &found) != 0)
        return ty_fail(error, TY_EIO, "%s: %s", path, strerror(errno));
    if (S_ISREG(found.st_mode))
        return TY_OK;
    return ty_fail(error, TY_EPARSE, "%s: found a %s, expected a file", path,
                   S_ISFIFO(found.st_mode)  ? "pipe"
                   : S_ISDIR(found.st_mode) ? "folder"
                                            : "device");
}

ty_status ty_file_read(const char *path, uint64_t limit, char **bytes, size_t *length,
                       ty_error *error)
{
    ty_status status;
    int file;

    if (limit == 0)
        limit = DEFAULT_LIMIT;
    if (strcmp(path, "-") == 0)
        return read_all(STDIN_FILENO, "<standard input>", limit, bytes, length, error);
    file = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (file < 0)
        return ty_fail(error, TY_EIO, "%s: %s", path, strerror(errno));
    status = wait_for_writer(file, path, error);
    if (status == TY_OK)
        status = read_all(file, path, limit, bytes, length, error);
    close(file);
    return status;
}

/* 0, or -1 with errno. */
static int write_all(int file, const char *bytes, size_t length)
{
    while (length > 0) {
        ssize_t put = write(file, bytes, length);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return -1;
        bytes += put;
        length -= (size_t)put;
    }
    return 0;
}

static ty_status write_standard_output(const void *bytes, size_t length, ty_error *error)
{
    /* Through stdio, to come after the program's earlier output. */
    if (fwrite(bytes, 1, length, stdout) != length || fflush(stdout) != 0)
        return ty_fail(error, TY_EIO, "<standard output>: %s", strerror(errno));
    return TY_OK;
}

/* Devices and pipes cannot be replaced, only written to. */
static ty_status write_in_place(const char *path, const void *bytes, size_t length, ty_error *error)
{
    ty_status status = TY_OK;
    int file = open(path, O_WRONLY | O_CLOEXEC);

    if (file < 0)
        return ty_fail(error, TY_EIO, "%s: %s", path, strerror(errno));
    if (write_all(file, bytes, length) != 0)
        status = ty_fail(error, TY_EIO, "%s: %s", path, strerror(errno));
    if (close(file) != 0 && status == TY_OK)
        status = ty_fail(error, TY_EIO, "%s: %s", path, strerror(errno));
    return status;
}

/* Opens a new file in the folder of `path`; -1 with errno. The mode is the one a plain creation
 * would get: mkstemp's 0600 would hide a shared plan from everyone else. */
static int open_temporary(const char *path, ty_text *name)
{
    const char *slash = strrchr(path, '/');
    int file = -1;

    for (int attempt = 0; attempt < TEMPORARY_ATTEMPTS; attempt++) {
        name->length = 0;
        ty_text_append(name, path, slash == NULL ? 0 : (size_t)(slash - path) + 1);
        ty_text_addf(name, ".trainyard-%ld-%d.tmp", (long)getpid(), attempt);
        if (name->failed != TY_OK) {
            errno = ENOMEM;
            return -1;
        }
        file = open(name->data, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (file >= 0 || errno != EEXIST)
            break;
    }
    return file;
}

/* Makes the new name survive a power cut; not every file system supports it, hence no check. */
static void flush_directory(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *folder = slash == NULL   ? ty_strdup(".")
                   : slash == path ? ty_strdup("/")
                                   : ty_strndup(path, (size_t)(slash - path));
    int file = folder == NULL ? -1 : open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (file >= 0) {
        (void)fsync(file);
        close(file);
    }
    ty_free(folder);
}

struct ty_file_writer {
    char *path; /* target of a symbolic link, which stays a link */
    ty_text temporary;
    int file; /* -1: closed */
};

void ty_file_writer_drop(ty_file_writer *writer)
{
    if (writer == NULL)
        return;
    if (writer->file >= 0) {
        close(writer->file);
        (void)unlink(writer->temporary.data);
    }
    ty_text_clear(&writer->temporary);
    ty_free(writer->path);
    ty_free(writer);
}

/* Resolves a name and the type of its file; a nonexistent name is unchanged. */
static ty_status target_find(const char *path, struct stat *old, bool *is_there, char **out,
                             ty_error *error)
{
    char *target;

    *is_there = stat(path, old) == 0;
    if (!*is_there) {
        *out = ty_strdup(path);
        return *out != NULL ? TY_OK : ty_fail(error, TY_ENOMEM, "%s: out of memory", path);
    }
    if (S_ISDIR(old->st_mode))
        return ty_fail(error, TY_EIO, "%s: %s", path, strerror(EISDIR));
    if (!S_ISREG(old->st_mode))
        return ty_fail(error, TY_EIO, "%s: found a device or a pipe, expected a file", path);
    target = realpath(path, NULL);
    if (target == NULL)
        return ty_fail(error, TY_EIO, "%s: %s", path, strerror(errno));
    *out = ty_strdup(target);
    free(target);
    return *out != NULL ? TY_OK : ty_fail(error, TY_ENOMEM, "%s: out of memory", path);
}

ty_status ty_file_writer_open(const char *path, ty_file_writer **out, ty_error *error)
{
    ty_file_writer *writer = ty_alloc(1, sizeof *writer);
    struct stat old;
    bool is_there;
    ty_status status;

    TY_TRY(ty_check_memory(writer != NULL, error));
    writer->file = -1;
    TY_CHECK(target_find(path, &old, &is_there, &writer->path, error), status, cleanup);
    writer->file = open_temporary(writer->path, &writer->temporary);
    if (writer->file < 0)
        status =
            ty_fail(error, errno == ENOMEM ? TY_ENOMEM : TY_EIO, "%s: %s", path, strerror(errno));
    else if (is_there && fchmod(writer->file, old.st_mode & 07777) != 0)
        status = ty_fail(error, TY_EIO, "%s: %s", path, strerror(errno));
    if (status == TY_OK) {
        *out = writer;
        writer = NULL; /* given away */
    }

cleanup:
    ty_file_writer_drop(writer);
    return status;
}

ty_status ty_file_writer_add(ty_file_writer *writer, const void *bytes, size_t length,
                             ty_error *error)
{
    if (write_all(writer->file, bytes, length) != 0)
        return ty_fail(error, TY_EIO, "%s: %s", writer->path, strerror(errno));
    return TY_OK;
}

ty_status ty_file_writer_finish(ty_file_writer **out, ty_error *error)
{
    ty_file_writer *writer = *out;
    ty_status status = TY_OK;
    int file = writer->file;

    *out = NULL;
    if (fsync(file) != 0)
        status = ty_fail(error, TY_EIO, "%s: %s", writer->path, strerror(errno));
    writer->file = -1;
    if (close(file) != 0 && status == TY_OK)
        status = ty_fail(error, TY_EIO, "%s: %s", writer->path, strerror(errno));
    if (status == TY_OK && rename(writer->temporary.data, writer->path) != 0)
        status = ty_fail(error, TY_EIO, "%s: %s", writer->path, strerror(errno));
    if (status != TY_OK)
        (void)unlink(writer->temporary.data);
    else
        flush_directory(writer->path);
    ty_file_writer_drop(writer);
    return status;
}

ty_status ty_file_write(const char *path, const void *bytes, size_t length, ty_error *error)
{
    ty_file_writer *writer = NULL;
    struct stat old;
    ty_status status;

    if (strcmp(path, "-") == 0)
        return write_standard_output(bytes, length, error);
    if (stat(path, &old) == 0 && !S_ISREG(old.st_mode) && !S_ISDIR(old.st_mode))
        return write_in_place(path, bytes, length, error);
    TY_CHECK(ty_file_writer_open(path, &writer, error), status, cleanup);
    TY_CHECK(ty_file_writer_add(writer, bytes, length, error), status, cleanup);
    status = ty_file_writer_finish(&writer, error);

cleanup:
    ty_file_writer_drop(writer);
    return status;
}

ty_status ty_file_try(const char *path, ty_error *error)
{
    ty_text temporary = {0};
    struct stat found;
    ty_status status = TY_OK;
    int file;

    if (strcmp(path, "-") == 0)
        return TY_OK;
    if (stat(path, &found) == 0 && S_ISDIR(found.st_mode))
        return ty_fail(error, TY_EIO, "%s: %s", path, strerror(EISDIR));
    if (stat(path, &found) == 0 && !S_ISREG(found.st_mode))
        return access(path, W_OK) == 0 ? TY_OK
                                       : ty_fail(error, TY_EIO, "%s: %s", path, strerror(errno));
    file = open_temporary(path, &temporary);
    if (file < 0)
        status =
            ty_fail(error, errno == ENOMEM ? TY_ENOMEM : TY_EIO, "%s: %s", path, strerror(errno));
    else if (write_all(file, "?", 1) != 0) /* a full disk can still create empty files */
        status = ty_fail(error, TY_EIO, "%s: %s", path, strerror(errno));
    if (file >= 0) {
        close(file);
        (void)unlink(temporary.data);
    }
    ty_text_clear(&temporary);
    return status;
}

ty_status ty_file_write_text(const char *path, const ty_text *text, ty_error *error)
{
    const ty_status status = ty_text_check(text, error);

    if (status != TY_OK)
        return status;
    return ty_file_write(path, text->data != NULL ? text->data : "", text->length, error);
}

ty_status ty_directory_make(const char *path, ty_error *error)
{
    ty_status status = TY_OK;
    struct stat found;
    int why;
    char *copy = ty_strdup(path);

    TY_TRY(ty_check_memory(copy != NULL, error));
    for (char *end = copy + 1; copy[0] != '\0'; end++) {
        char last = *end;
        if (last != '/' && last != '\0')
            continue;
        *end = '\0';
        why = mkdir(copy, 0777) != 0 ? errno : 0;
        if (why != 0 && why != EEXIST && stat(copy, &found) != 0) {
            status = ty_fail(error, TY_EIO, "%s: %s", path, strerror(why));
            goto cleanup;
        }
        *end = last;
        if (last == '\0')
            break;
    }
    if (stat(path, &found) != 0 || !S_ISDIR(found.st_mode))
        status = ty_fail(error, TY_EIO, "%s: %s", path, strerror(ENOTDIR));

cleanup:
    ty_free(copy);
    return status;
}

bool ty_file_exists(const char *path)
{
    struct stat found;
    return stat(path, &found) == 0;
}

/* "" unless the running program's folder can be found (Linux only). */
static void program_folder(char *folder, size_t size)
{
    ssize_t length = readlink("/proc/self/exe", folder, size - 1);
    char *slash;

    folder[length > 0 ? length : 0] = '\0';
    slash = strrchr(folder, '/');
    if (slash != NULL)
        *slash = '\0';
}

ty_status ty_data_path(const char *folder, const char *name, char **path, ty_error *error)
{
    char program[4096];
    const char *bases[] = {getenv("TRAINYARD_DATA"), program, TY_SOURCE_DIR};
    const char *const middles[] = {"", "/../share/trainyard", ""};
    ty_text text = {0};
    ty_status status;

    program_folder(program, sizeof program);
    for (size_t i = 0; i < 3; i++) {
        if (bases[i] == NULL || bases[i][0] == '\0')
            continue;
        text.length = 0;
        ty_text_addf(&text, "%s%s/%s", bases[i], middles[i], folder);
        if (name != NULL && name[0] != '\0')
            ty_text_addf(&text, "/%s", name);
        if (text.failed != TY_OK || ty_file_exists(text.data))
            return ty_text_take(&text, path, error);
    }
    status = ty_fail(error, TY_EIO, "%s/%s: no such file under %s, %s%s or %s", folder,
                     name == NULL ? "" : name, bases[0] == NULL ? "$TRAINYARD_DATA" : bases[0],
                     program, middles[1], TY_SOURCE_DIR);
    ty_text_clear(&text);
    return status;
}

/* ---- the names in a folder ---- */

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Appends "lenet" for "lenet.json"; skips other files. */
static ty_status add_name(const char *file, const char *suffix, char ***names, uint32_t *count,
                          ty_error *error)
{
    size_t length = strlen(file), end = strlen(suffix);
    char **grown, *name;

    if (file[0] == '.' || length <= end || strcmp(file + length - end, suffix) != 0)
        return TY_OK;
    grown = ty_resize(*names, *count + 1, sizeof **names);
    TY_TRY(ty_check_memory(grown != NULL, error));
    *names = grown;
    name = ty_strndup(file, length - end);
    TY_TRY(ty_check_memory(name != NULL, error));
    grown[(*count)++] = name;
    return TY_OK;
}

ty_status ty_data_names(const char *folder, const char *suffix, char ***names, uint32_t *count,
                        ty_error *error)
{
    ty_status status = TY_OK;
    char *path = NULL, **list = NULL;
    uint32_t n = 0;
    DIR *directory = NULL;

    TY_CHECK(ty_data_path(folder, NULL, &path, error), status, cleanup);
    directory = opendir(path);
    if (directory == NULL) {
        status =
            ty_fail(error, errno == ENOMEM ? TY_ENOMEM : TY_EIO, "%s: %s", path, strerror(errno));
        goto cleanup;
    }
    for (const struct dirent *entry; (entry = readdir(directory)) != NULL;)
        TY_CHECK(add_name(entry->d_name, suffix, &list, &n, error), status, cleanup);
    if (n == 0) {
        status = ty_fail(error, TY_EIO, "%s: no %s file in this directory", path, suffix);
        goto cleanup;
    }
    qsort(list, n, sizeof *list, by_name);
    *names = list;
    *count = n;
    list = NULL; /* given away */

cleanup:
    if (directory != NULL)
        closedir(directory);
    ty_names_free(list, n);
    ty_free(path);
    return status;
}

void ty_names_free(char **names, uint32_t count)
{
    for (uint32_t i = 0; names != NULL && i < count; i++)
        ty_free(names[i]);
    ty_free(names);
}
