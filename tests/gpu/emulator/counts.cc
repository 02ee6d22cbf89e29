/* Launches and bytes by name, in the order of their first occurrence. */
#include "emulated_counts.h"
#include "emulator.h"

#include <cstdlib>
#include <mutex>
#include <vector>

namespace
{
std::mutex lock;
std::vector<emulated_count> counts;
emulated_watch *watch;
thread_local bool is_stated;
thread_local uint64_t stated_read, stated_written;

bool is_counting()
{
    static const bool made = [] {
        const char *asked = getenv("TRAINYARD_EMULATED_COUNTS");
        return asked != nullptr && strcmp(asked, "1") == 0;
    }();

    return made;
}

void note(const char *name, bool is_known, uint64_t read, uint64_t written)
{
    std::lock_guard<std::mutex> guard(lock);

    for (emulated_count &count : counts)
        if (strcmp(count.name, name) == 0) {
            count.launches++;
            count.read_bytes += read;
            count.written_bytes += written;
            count.unstated += !is_known;
            return;
        }
    counts.push_back({name, 1, read, written, (uint64_t)!is_known});
}
} // namespace

void emulated_moves(uint64_t read, uint64_t written)
{
    is_stated = true;
    stated_read = read;
    stated_written = written;
}

bool emulated_launch_counted(const char *name, dim3 grid)
{
    const bool is_known = is_stated;

    is_stated = false;
    if (watch != nullptr)
        watch(name, is_known, stated_read, stated_written);
    if (!is_counting())
        return false;
    note(name, is_known, is_known ? stated_read : 0, is_known ? stated_written : 0);
    return (uint64_t)grid.x * grid.y * grid.z > 1;
}

bool emulated_call_counted(const char *name, uint64_t read_bytes, uint64_t written_bytes)
{
    if (is_counting())
        note(name, true, read_bytes, written_bytes);
    return is_counting();
}

bool emulated_count_get(uint32_t i, emulated_count *out)
{
    std::lock_guard<std::mutex> guard(lock);

    if (i >= counts.size())
        return false;
    *out = counts[i];
    return true;
}

void emulated_counts_watch(emulated_watch *asked)
{
    watch = asked;
}

void emulated_counts_forget(void)
{
    std::lock_guard<std::mutex> guard(lock);

    counts.clear();
}
