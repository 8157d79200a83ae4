/* Many small looks at a disk in one call: entries of a directory with their stats, parts of its plain files, where a batch
   or a record lies.

   What a quick look at a clean log directory costs is not reading but asking: thousands of names, some 30 bytes of each.
   Called by storage/disk/fs.py and storage/disk/os_files.py alone; Python does the same where this was not built. The system is asked
   without the interpreter's lock; nothing is opened through a symbolic link, and nothing waits on a FIFO. */

#ifdef __linux__
#define _GNU_SOURCE /* syncfs; Python's header would ask for it as well */
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/vfs.h>
#endif

#include "_seek.h"

#ifdef __APPLE__
#define MTIME(found) ((found)->st_mtimespec)
#else
#define MTIME(found) ((found)->st_mtim)
#endif

/* ---- entries ---- */

struct entry {
    char *name;
    struct stat found;
};

struct listing {
    struct entry *entries;
    size_t count, room;
};

static void
listing_free(struct listing *listing)
{
    for (size_t n = 0; n < listing->count; n++)
        free(listing->entries[n].name);
    free(listing->entries);
}

static int
listing_add(struct listing *listing, const char *name, const struct stat *found)
{
    if (listing->count == listing->room) {
        const size_t room = listing->room ? 2 * listing->room : 64;
        struct entry *const grown = realloc(listing->entries, room * sizeof *grown);
        if (grown == NULL)
            return ENOMEM;
        listing->entries = grown;
        listing->room = room;
    }
    char *const kept = strdup(name);
    if (kept == NULL)
        return ENOMEM;
    listing->entries[listing->count++] = (struct entry){kept, *found};
    return 0;
}

/* Fill the listing; return 0, or the number of the error. */
static int
listing_fill(struct listing *listing, const char *path)
{
    DIR *const directory = opendir(path);
    if (directory == NULL)
        return errno;
    int error = 0;
    while (!error) {
        errno = 0;
        const struct dirent *const next = readdir(directory);
        if (next == NULL) {
            error = errno;
            break;
        }
        if (strcmp(next->d_name, ".") == 0 || strcmp(next->d_name, "..") == 0)
            continue;
        struct stat found;
        if (fstatat(dirfd(directory), next->d_name, &found, AT_SYMLINK_NOFOLLOW) == 0)
            error = listing_add(listing, next->d_name, &found);
        else if (errno != ENOENT) /* gone meanwhile */
            error = errno;
    }
    closedir(directory);
    return error;
}

static PyObject *
stat_of(const struct stat *found, PyTypeObject *type, PyObject *kinds)
{
    const mode_t mode = found->st_mode;
    const int kind = S_ISREG(mode) ? 0 : S_ISDIR(mode) ? 1 : S_ISLNK(mode) ? 2 : 3;
    PyObject *const fields = Py_BuildValue(
        "(OLLKKIIIKL)", PyTuple_GET_ITEM(kinds, kind), (long long)found->st_size,
        (long long)MTIME(found).tv_sec * 1000000000 + MTIME(found).tv_nsec, (unsigned long long)found->st_ino,
        (unsigned long long)found->st_dev, (unsigned int)(mode & 07777), (unsigned int)found->st_uid,
        (unsigned int)found->st_gid, (unsigned long long)found->st_nlink, (long long)found->st_blocks * 512);
    if (fields == NULL)
        return NULL;
    PyObject *const arguments = PyTuple_Pack(1, fields);
    Py_DECREF(fields);
    if (arguments == NULL)
        return NULL;
    PyObject *const made = PyTuple_Type.tp_new(type, arguments, NULL);
    Py_DECREF(arguments);
    return made;
}

/* entries(path, type of the stats, the four kinds): a list of pairs of name and stat, in no order. */
static PyObject *
module_entries(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *path = NULL, *kinds;
    PyTypeObject *type;
    if (!PyArg_ParseTuple(args, "O&O!O!", PyUnicode_FSConverter, &path, &PyType_Type, &type, &PyTuple_Type, &kinds))
        return NULL;
    if (PyTuple_GET_SIZE(kinds) != 4 || !PyType_IsSubtype(type, &PyTuple_Type)) {
        Py_DECREF(path);
        PyErr_SetString(PyExc_TypeError, "a type of tuples and four kinds are wanted");
        return NULL;
    }
    struct listing listing = {NULL, 0, 0};
    int error;
    Py_BEGIN_ALLOW_THREADS
    error = listing_fill(&listing, PyBytes_AS_STRING(path));
    Py_END_ALLOW_THREADS
    Py_DECREF(path);
    PyObject *made = NULL;
    if (error) {
        errno = error;
        PyErr_SetFromErrno(PyExc_OSError);
    } else
        made = PyList_New((Py_ssize_t)listing.count);
    for (size_t n = 0; made != NULL && n < listing.count; n++) {
        PyObject *const name = PyUnicode_DecodeFSDefault(listing.entries[n].name);
        PyObject *const found = name == NULL ? NULL : stat_of(&listing.entries[n].found, type, kinds);
        PyObject *const pair = found == NULL ? NULL : PyTuple_Pack(2, name, found);
        Py_XDECREF(name);
        Py_XDECREF(found);
        if (pair == NULL)
            Py_CLEAR(made);
        else
            PyList_SET_ITEM(made, (Py_ssize_t)n, pair);
    }
    listing_free(&listing);
    return made;
}

/* ---- parts ---- */

struct part {
    PyObject *name, *data; /* bytes, both */
    long long position;
    Py_ssize_t size, done;
    int error; /* its number where it cannot be read, else 0 */
};

/* Return 0, or the number of the error. */
static int
part_read(struct part *part, int directory)
{
    const char *const name = PyBytes_AS_STRING(part->name);
    char *const target = PyBytes_AS_STRING(part->data);
    if (strchr(name, '/') != NULL)
        return EINVAL;
    if (strcmp(name, ".lock") == 0)
        return EBUSY; /* closing it again would drop the lock that this very process may hold */
    const int file = openat(directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (file < 0)
        return errno;
    struct stat found;
    int error = fstat(file, &found) != 0 ? errno : S_ISREG(found.st_mode) ? 0 : EINVAL;
    while (!error && part->done < part->size) {
        const ssize_t count =
            pread(file, target + part->done, (size_t)(part->size - part->done), (off_t)(part->position + part->done));
        if (count < 0)
            error = errno == EINTR ? 0 : errno;
        else if (count == 0)
            break;
        else
            part->done += count;
    }
    close(file);
    return error;
}

static void
parts_read(struct part *parts, Py_ssize_t count, const char *path)
{
    const int directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const int error = directory < 0 ? errno : 0;
    for (Py_ssize_t n = 0; n < count; n++)
        parts[n].error = error ? error : part_read(&parts[n], directory);
    if (!error)
        close(directory);
}

static int
part_parse(struct part *part, PyObject *wanted)
{
    if (!PyTuple_Check(wanted)) {
        PyErr_SetString(PyExc_TypeError, "tuples of name, position and size are wanted");
        return -1;
    }
    if (!PyArg_ParseTuple(wanted, "O&Ln", PyUnicode_FSConverter, &part->name, &part->position, &part->size))
        return -1;
    if (part->position < 0 || part->size < 0) {
        PyErr_SetString(PyExc_ValueError, "below 0");
        return -1;
    }
    part->data = PyBytes_FromStringAndSize(NULL, part->size);
    return part->data == NULL ? -1 : 0;
}

static PyObject *
parts_list(struct part *parts, Py_ssize_t count)
{
    PyObject *const made = PyList_New(count);
    for (Py_ssize_t n = 0; made != NULL && n < count; n++) {
        struct part *const part = &parts[n];
        if (part->error == 0 && part->done < part->size && _PyBytes_Resize(&part->data, part->done) < 0) {
            Py_DECREF(made);
            return NULL;
        }
        PyObject *const item = part->error ? PyLong_FromLong(part->error) : Py_NewRef(part->data);
        if (item == NULL) {
            Py_DECREF(made);
            return NULL;
        }
        PyList_SET_ITEM(made, n, item);
    }
    return made;
}

/* parts(path of the directory, tuple of (name, position, size)): a list of bytes, and of the numbers of errors. */
static PyObject *
module_parts(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *path = NULL, *wanted;
    if (!PyArg_ParseTuple(args, "O&O!", PyUnicode_FSConverter, &path, &PyTuple_Type, &wanted))
        return NULL;
    const Py_ssize_t count = PyTuple_GET_SIZE(wanted);
    struct part *const parts = PyMem_Calloc((size_t)count + 1, sizeof *parts);
    PyObject *made = NULL;
    int failed = parts == NULL;
    if (failed)
        PyErr_NoMemory();
    for (Py_ssize_t n = 0; !failed && n < count; n++)
        failed = part_parse(&parts[n], PyTuple_GET_ITEM(wanted, n)) < 0;
    if (!failed) {
        Py_BEGIN_ALLOW_THREADS
        parts_read(parts, count, PyBytes_AS_STRING(path));
        Py_END_ALLOW_THREADS
        made = parts_list(parts, count);
    }
    for (Py_ssize_t n = 0; parts != NULL && n < count; n++) {
        Py_XDECREF(parts[n].name);
        Py_XDECREF(parts[n].data);
    }
    PyMem_Free(parts);
    Py_DECREF(path);
    return made;
}

/* ---- batches ---- */

/* Put whole numbers into `numbers`; false, with an exception set, where one is none of 64 bits. */
static int
numbers_of(PyObject *const *args, Py_ssize_t count, long long *numbers)
{
    for (Py_ssize_t n = 0; n < count; n++) {
        numbers[n] = PyLong_AsLongLong(args[n]);
        if (numbers[n] == -1 && PyErr_Occurred())
            return 0;
    }
    return 1;
}

static int
has_arguments(Py_ssize_t count, Py_ssize_t wanted)
{
    if (count != wanted)
        PyErr_Format(PyExc_TypeError, "%zd arguments are wanted, not %zd", wanted, count);
    return count == wanted;
}

static int
is_base(long long offset)
{
    if (offset < 0)
        PyErr_SetString(PyExc_ValueError, "a base offset below 0");
    return offset >= 0;
}

/* A tuple of the given type, without what its own constructor would add. */
static PyObject *
tuple_of(PyObject *type, const int64_t *numbers, Py_ssize_t count)
{
    if (!PyType_Check(type) || !PyType_FastSubclass((PyTypeObject *)type, Py_TPFLAGS_TUPLE_SUBCLASS)) {
        PyErr_SetString(PyExc_TypeError, "a type of tuples is wanted");
        return NULL;
    }
    PyObject *const made = ((PyTypeObject *)type)->tp_alloc((PyTypeObject *)type, count);
    for (Py_ssize_t n = 0; made != NULL && n < count; n++) {
        PyObject *const number = PyLong_FromLongLong(numbers[n]);
        if (number == NULL) {
            Py_DECREF(made);
            return NULL;
        }
        PyTuple_SET_ITEM(made, n, number);
    }
    return made;
}

static PyObject *
place_value(PyObject *type, int is_found, const struct place *found)
{
    if (!is_found)
        Py_RETURN_NONE;
    return tuple_of(type, (const int64_t[]){found->position, found->size, found->base_offset, found->last_offset,
                                            found->max_timestamp, 2}, 6);
}

/* seek_batch(descriptor, start, end, timestamp, type): position, size, base and last offset, largest timestamp and magic
   of the first batch from `start` on that reaches it, or None. */
static PyObject *
module_seek_batch(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    long long asked[4];
    struct piece piece;
    struct place found;
    int is_found;
    if (!has_arguments(count, 5) || !numbers_of(args, 4, asked))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    is_found = place_find(&piece, (int)asked[0], (struct hint){asked[1], -1}, asked[2], INT64_MAX, asked[3], &found);
    Py_END_ALLOW_THREADS
    return place_value(args[4], is_found, &found);
}

/* seek_offset(descriptor, offset index, base offset, end, offset, type): the same of the first batch that reaches the
   offset, from where the index says on. */
static PyObject *
module_seek_offset(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    long long file, asked[3];
    Py_buffer index;
    struct piece piece;
    struct place found;
    int is_found;
    if (!has_arguments(count, 6) || !numbers_of(args, 1, &file) || !numbers_of(args + 2, 3, asked)
        || !is_base(asked[0]) || PyObject_GetBuffer(args[1], &index, PyBUF_SIMPLE) < 0)
        return NULL;
    /* It may grow as soon as the lock is given back, and cannot while it is held here. */
    const struct hint hint = hint_of(index.buf, (size_t)index.len, wrapped_sum(asked[2], -asked[0]));
    PyBuffer_Release(&index);
    Py_BEGIN_ALLOW_THREADS
    is_found = place_find(&piece, (int)file, hint, asked[1], asked[2], INT64_MAX, &found);
    Py_END_ALLOW_THREADS
    return place_value(args[5], is_found, &found);
}

/* seek_time(descriptor, time index, offset index, base offset, end, timestamp, log start, type): timestamp and offset of
   the first record from both on, or None where more has to be looked at than one plain batch. */
static PyObject *
module_seek_time(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    long long file, asked[4];
    Py_buffer times, offsets;
    struct found_record found;
    int is_found;
    if (!has_arguments(count, 8) || !numbers_of(args, 1, &file) || !numbers_of(args + 3, 4, asked)
        || !is_base(asked[0]) || PyObject_GetBuffer(args[1], &times, PyBUF_SIMPLE) < 0)
        return NULL;
    const int64_t relative = last_by_time(times.buf, (size_t)times.len, asked[2]);
    const int64_t start = wrapped_sum(asked[3], -asked[0]);
    PyBuffer_Release(&times);
    if (PyObject_GetBuffer(args[2], &offsets, PyBUF_SIMPLE) < 0)
        return NULL;
    const struct hint hint = hint_of(offsets.buf, (size_t)offsets.len, relative > start ? relative : start);
    PyBuffer_Release(&offsets);
    Py_BEGIN_ALLOW_THREADS
    is_found = record_find((int)file, hint, asked[1], asked[2], asked[3], &found);
    Py_END_ALLOW_THREADS
    if (!is_found)
        Py_RETURN_NONE;
    return tuple_of(args[7], (const int64_t[]){found.timestamp, found.offset}, 2);
}

/* ---- a whole file system ---- */

#ifdef __linux__
/* file_system(descriptor): the number of its kind, as statfs(2) has it. */
static PyObject *
module_file_system(PyObject *Py_UNUSED(module), PyObject *descriptor)
{
    struct statfs found;
    const long number = PyLong_AsLong(descriptor);
    if (number == -1 && PyErr_Occurred())
        return NULL;
    if (fstatfs((int)number, &found) < 0)
        return PyErr_SetFromErrno(PyExc_OSError);
    return PyLong_FromUnsignedLong((unsigned long)found.f_type & 0xffffffff);
}

/* sync_file_system(descriptor): syncfs(2), which Python does not have. */
static PyObject *
module_sync_file_system(PyObject *Py_UNUSED(module), PyObject *descriptor)
{
    const long number = PyLong_AsLong(descriptor);
    int failed;
    if (number == -1 && PyErr_Occurred())
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    failed = syncfs((int)number);
    Py_END_ALLOW_THREADS
    if (failed)
        return PyErr_SetFromErrno(PyExc_OSError);
    Py_RETURN_NONE;
}
#endif

static PyMethodDef functions[] = {
    {"entries", module_entries, METH_VARARGS, NULL},
    {"parts", module_parts, METH_VARARGS, NULL},
    {"seek_batch", (PyCFunction)(void (*)(void))module_seek_batch, METH_FASTCALL, NULL},
    {"seek_offset", (PyCFunction)(void (*)(void))module_seek_offset, METH_FASTCALL, NULL},
    {"seek_time", (PyCFunction)(void (*)(void))module_seek_time, METH_FASTCALL, NULL},
#ifdef __linux__
    {"file_system", module_file_system, METH_O, NULL},
    {"sync_file_system", module_sync_file_system, METH_O, NULL},
#endif
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {{0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "storage.disk._disk",
    .m_doc = "Many small looks at a disk in one call; see storage.disk.fs.",
    .m_methods = functions,
    .m_slots = slots,
};

PyMODINIT_FUNC
PyInit__disk(void)
{
    return PyModuleDef_Init(&definition);
}
