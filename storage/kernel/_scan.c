/* The module `storage.kernel._scan`: the C kernel behind storage/kernel/native.py.

   Here is what touches Python: arguments in, the interpreter's lock released, numbers out. The loops are in _batches.h,
   _fold.h, _mapped.h, _saved.h and _crc.h. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "_batches.h"
#include "_mapped.h"
#include "_saved.h"

/* ---- functions over a buffer ---- */

typedef struct scanned (*scan_function)(const uint8_t *, size_t, int64_t *, size_t, int64_t, int64_t);

/* Return the columns of a buffer that must hold `capacity` rows exactly; NULL with an exception set if it does not. */
static int64_t *
columns_of(const Py_buffer *block, Py_ssize_t capacity)
{
    const Py_ssize_t row = (Py_ssize_t)sizeof(int64_t) * COLUMNS;
    if (capacity < 1 || capacity > PY_SSIZE_T_MAX / row || block->len != capacity * row
        || (uintptr_t)block->buf % sizeof(int64_t) != 0) {
        PyErr_Format(PyExc_ValueError, "a block of %zd bytes does not hold %zd rows", block->len, capacity);
        return NULL;
    }
    return block->buf;
}

static PyObject *
scan_with(scan_function function, PyObject *args)
{
    Py_buffer window, block;
    Py_ssize_t capacity;
    long long position, next_offset;
    PyObject *result = NULL;
    if (!PyArg_ParseTuple(args, "y*w*nLL", &window, &block, &capacity, &position, &next_offset))
        return NULL;
    int64_t *const columns = columns_of(&block, capacity);
    if (columns != NULL && position > INT64_MAX - window.len)
        PyErr_SetString(PyExc_OverflowError, "position does not fit an int64");
    else if (columns != NULL) {
        struct scanned scanned;
        Py_BEGIN_ALLOW_THREADS
        scanned = function(window.buf, (size_t)window.len, columns, (size_t)capacity, position, next_offset);
        Py_END_ALLOW_THREADS
        result = Py_BuildValue("nni", (Py_ssize_t)scanned.count, (Py_ssize_t)scanned.size, (int)scanned.stop);
    }
    PyBuffer_Release(&window);
    PyBuffer_Release(&block);
    return result;
}

static PyObject *
module_scan(PyObject *Py_UNUSED(module), PyObject *args)
{
    return scan_with(scan_batches, args);
}

static PyObject *
module_walk(PyObject *Py_UNUSED(module), PyObject *args)
{
    return scan_with(walk_headers, args);
}

static PyObject *
sum_with(crc_function function, PyObject *args)
{
    Py_buffer data;
    unsigned int value = 0;
    uint32_t sum;
    if (!PyArg_ParseTuple(args, "y*|I", &data, &value))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    sum = function(value, data.buf, (size_t)data.len);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&data);
    return PyLong_FromUnsignedLong(sum);
}

static PyObject *
module_crc32c(PyObject *Py_UNUSED(module), PyObject *args)
{
    return sum_with(crc32c, args);
}

static PyObject *
module_crc32(PyObject *Py_UNUSED(module), PyObject *args)
{
    return sum_with(crc32_ieee, args);
}

static PyObject *
module_crc_name(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    return PyUnicode_FromString(crc_chosen);
}

static PyObject *
module_choose_crc(PyObject *Py_UNUSED(module), PyObject *args)
{
    int portable;
    if (!PyArg_ParseTuple(args, "p", &portable))
        return NULL;
    crc_choose(portable);
    Py_RETURN_NONE;
}

static PyObject *
module_find(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer window;
    Py_ssize_t start;
    long long lowest, highest;
    int64_t found = -1;
    if (!PyArg_ParseTuple(args, "y*nLL", &window, &start, &lowest, &highest))
        return NULL;
    if (start >= 0) {
        Py_BEGIN_ALLOW_THREADS
        found = find_batch(window.buf, (size_t)window.len, (size_t)start, lowest, highest);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&window);
    return PyLong_FromLongLong(found);
}

static PyObject *
module_check_records(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer payload;
    long long count;
    int64_t found;
    if (!PyArg_ParseTuple(args, "y*L", &payload, &count))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    found = check_records(payload.buf, (size_t)payload.len, count);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&payload);
    return PyLong_FromLongLong(found);
}

static PyObject *
module_walk_records(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer payload;
    long long count, first, base_timestamp;
    struct walked walked;
    if (!PyArg_ParseTuple(args, "y*LLL", &payload, &count, &first, &base_timestamp))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    walked = walk_records(payload.buf, (size_t)payload.len, count, first, base_timestamp);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&payload);
    return Py_BuildValue("LnLLNN", (long long)walked.count, (Py_ssize_t)walked.place, (long long)walked.least,
                         (long long)walked.most, PyBool_FromLong(walked.is_dense), PyBool_FromLong(walked.lacks_key));
}

static PyObject *
module_find_record(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer payload;
    long long count, base_timestamp, timestamp, offset_delta;
    struct record record;
    if (!PyArg_ParseTuple(args, "y*LLLL", &payload, &count, &base_timestamp, &timestamp, &offset_delta))
        return NULL;
    struct search search = {.left = count};
    const int found = find_record(payload.buf, (size_t)payload.len, &search, base_timestamp, timestamp, offset_delta, &record);
    PyBuffer_Release(&payload);
    if (!found)
        Py_RETURN_NONE;
    return Py_BuildValue("LL", (long long)record.offset_delta, (long long)record.timestamp_delta);
}

static PyObject *
module_count_up_to(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer data;
    Py_ssize_t width;
    long long target;
    if (!PyArg_ParseTuple(args, "y*nL", &data, &width, &target))
        return NULL;
    if (width != 8 && width != 12) {
        PyBuffer_Release(&data);
        PyErr_SetString(PyExc_ValueError, "entries are of 8 or 12 bytes");
        return NULL;
    }
    const size_t count = count_up_to(data.buf, (size_t)data.len, (size_t)width, target);
    PyBuffer_Release(&data);
    return PyLong_FromSize_t(count);
}

/* What a leader changes in a client's batch lies outside the checksum: base offset and leader epoch. */
static void
set_led(uint8_t *batch, int64_t base_offset, int32_t leader_epoch)
{
    for (int n = 0; n < 8; n++)
        batch[n] = (uint8_t)((uint64_t)base_offset >> (56 - 8 * n));
    for (int n = 0; n < 4; n++)
        batch[12 + n] = (uint8_t)((uint32_t)leader_epoch >> (24 - 8 * n));
}

static PyObject *
module_lead(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer data;
    long long next_offset;
    int leader_epoch;
    PyObject *result = NULL;
    struct led led;
    if (!PyArg_ParseTuple(args, "y*Li", &data, &next_offset, &leader_epoch))
        return NULL;
    /* The lock is kept: for batches of the usual size a release would take as long as the work. */
    if (!lead_batch(data.buf, (size_t)data.len, &led)) {
        PyBuffer_Release(&data);
        Py_RETURN_NONE;
    }
    PyObject *const copy = PyByteArray_FromStringAndSize(data.buf, data.len);
    PyBuffer_Release(&data);
    if (copy != NULL) {
        set_led((uint8_t *)PyByteArray_AS_STRING(copy), next_offset, leader_epoch);
        result = Py_BuildValue("NLLLNiLii", copy, (long long)led.walked.count, (long long)led.walked.least,
                               (long long)led.walked.most, PyBool_FromLong(led.walked.lacks_key), led.attributes,
                               (long long)led.producer_id, led.producer_epoch, led.base_sequence);
    }
    return result;
}

/* ---- the fold ---- */

typedef struct {
    PyObject_HEAD
    struct fold fold;
    int is_busy; /* set with the lock held while a thread works without it */
} FoldObject;

static int
is_free(const FoldObject *self)
{
    if (self->is_busy)
        PyErr_SetString(PyExc_RuntimeError, "this fold is in use by another thread");
    return !self->is_busy;
}

static PyObject *
Fold_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    long long base_offset, interval, max_index_size, block_offsets = 0;
    Py_ssize_t event_limit;
    if (kwargs != NULL && PyDict_GET_SIZE(kwargs) != 0) {
        PyErr_SetString(PyExc_TypeError, "Fold takes no keywords");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "LLLn|L", &base_offset, &interval, &max_index_size, &event_limit, &block_offsets))
        return NULL;
    if (max_index_size < 0 || event_limit < 0 || block_offsets < 0) {
        PyErr_SetString(PyExc_ValueError, "a limit below 0");
        return NULL;
    }
    FoldObject *const self = (FoldObject *)type->tp_alloc(type, 0);
    if (self != NULL)
        fold_init(&self->fold, base_offset, interval, max_index_size, (size_t)event_limit, block_offsets);
    return (PyObject *)self;
}

static void
Fold_dealloc(FoldObject *self)
{
    PyTypeObject *const type = Py_TYPE(self);
    fold_free(&self->fold);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *
Fold_add(FoldObject *self, PyObject *args)
{
    Py_buffer block;
    Py_ssize_t capacity, count;
    int failed = 1;
    if (!is_free(self) || !PyArg_ParseTuple(args, "y*nn", &block, &capacity, &count))
        return NULL;
    const int64_t *const columns = columns_of(&block, capacity);
    if (columns != NULL && (count < 0 || count > capacity))
        PyErr_Format(PyExc_ValueError, "%zd of %zd rows", count, capacity);
    else if (columns != NULL) {
        self->is_busy = 1;
        Py_BEGIN_ALLOW_THREADS
        failed = fold_add(&self->fold, columns, (size_t)capacity, (size_t)count);
        Py_END_ALLOW_THREADS
        self->is_busy = 0;
        if (failed)
            PyErr_NoMemory();
    }
    PyBuffer_Release(&block);
    if (failed)
        return NULL;
    Py_RETURN_NONE;
}

/* Return what `folded` holds, NULL with an exception set if memory did not suffice. */
static PyObject *
folded_value(const struct folded *folded, int failed)
{
    if (failed)
        return PyErr_NoMemory();
    return Py_BuildValue("nniLLL", (Py_ssize_t)folded->scanned.count, (Py_ssize_t)folded->scanned.size,
                         (int)folded->scanned.stop, (long long)folded->next, (long long)folded->last_position,
                         (long long)folded->before_last);
}

static PyObject *
Fold_scan(FoldObject *self, PyObject *args)
{
    Py_buffer window, block;
    Py_ssize_t capacity;
    long long position, next_offset;
    PyObject *result = NULL;
    if (!is_free(self) || !PyArg_ParseTuple(args, "y*w*nLL", &window, &block, &capacity, &position, &next_offset))
        return NULL;
    int64_t *const columns = columns_of(&block, capacity);
    if (columns != NULL && position > INT64_MAX - window.len)
        PyErr_SetString(PyExc_OverflowError, "position does not fit an int64");
    else if (columns != NULL) {
        struct folded folded;
        int failed;
        self->is_busy = 1;
        Py_BEGIN_ALLOW_THREADS
        failed = scan_and_fold(&self->fold, window.buf, (size_t)window.len, columns, (size_t)capacity, position,
                               next_offset, &folded);
        Py_END_ALLOW_THREADS
        self->is_busy = 0;
        result = folded_value(&folded, failed);
    }
    PyBuffer_Release(&window);
    PyBuffer_Release(&block);
    return result;
}

static PyObject *
Fold_scan_file(FoldObject *self, PyObject *args)
{
    Py_buffer block;
    Py_ssize_t capacity;
    long long position, end, next_offset;
    int file;
    PyObject *result = NULL;
    if (!is_free(self) || !PyArg_ParseTuple(args, "iw*nLLL", &file, &block, &capacity, &position, &end, &next_offset))
        return NULL;
    int64_t *const columns = columns_of(&block, capacity);
    if (columns != NULL && (position < 0 || end <= position || end - position > MAPPED))
        PyErr_Format(PyExc_ValueError, "bytes %lld to %lld", position, end);
    else if (columns != NULL) {
        struct folded folded = {.next = next_offset, .scanned.stop = NEED_MORE};
        int failed = 0;
        if (guard_install()) {
            self->is_busy = 1;
            Py_BEGIN_ALLOW_THREADS
            failed = scan_and_fold_file(&self->fold, file, columns, (size_t)capacity, position, end, next_offset, &folded);
            Py_END_ALLOW_THREADS
            self->is_busy = 0;
        }
        result = folded_value(&folded, failed);
    }
    PyBuffer_Release(&block);
    return result;
}

static PyObject *
fault_value(const struct fault *fault, int numbers)
{
    if (!fault->is_set)
        Py_RETURN_NONE;
    if (numbers == 1)
        return Py_BuildValue("LL", (long long)fault->position, (long long)fault->first);
    return Py_BuildValue("LLL", (long long)fault->position, (long long)fault->first, (long long)fault->second);
}

static PyObject *
Fold_facts(FoldObject *self, PyObject *Py_UNUSED(unused))
{
    const struct fold *const f = &self->fold;
    if (!is_free(self))
        return NULL;
    PyObject *const first = f->batches ? PyLong_FromLongLong(f->first_offset) : Py_NewRef(Py_None);
    return Py_BuildValue("LLNLLLLKKNKNNNN", (long long)f->batches, (long long)f->records, first,
                         (long long)f->next_offset, (long long)f->max_timestamp, (long long)f->max_timestamp_offset,
                         (long long)f->gaps, (unsigned long long)f->magics, (unsigned long long)f->codecs,
                         PyBool_FromLong(f->has_producers), (unsigned long long)f->digest_high << 32 | f->digest_low,
                         PyBool_FromLong(f->index_overflow), fault_value(&f->epoch_fall, 2),
                         fault_value(&f->first_gap, 2), fault_value(&f->range_fault, 1));
}

static PyObject *
Fold_epochs(FoldObject *self, PyObject *Py_UNUSED(unused))
{
    const size_t count = self->fold.epochs.size / (2 * sizeof(int64_t));
    if (!is_free(self))
        return NULL;
    PyObject *const list = PyList_New((Py_ssize_t)count);
    for (size_t n = 0; list != NULL && n < count; n++) {
        int64_t rise[2];
        memcpy(rise, self->fold.epochs.data + n * sizeof rise, sizeof rise);
        PyObject *const pair = Py_BuildValue("LL", (long long)rise[0], (long long)rise[1]);
        if (pair == NULL) {
            Py_DECREF(list);
            return NULL;
        }
        PyList_SET_ITEM(list, (Py_ssize_t)n, pair);
    }
    return list;
}

static PyObject *
Fold_offset_index(FoldObject *self, PyObject *Py_UNUSED(unused))
{
    if (!is_free(self))
        return NULL;
    return PyBytes_FromStringAndSize((const char *)self->fold.offsets.data, (Py_ssize_t)self->fold.offsets.size);
}

static PyObject *
Fold_time_index(FoldObject *self, PyObject *Py_UNUSED(unused))
{
    uint8_t entry[TIME_ENTRY];
    if (!is_free(self))
        return NULL;
    const size_t closing = time_entry(&self->fold, entry), size = self->fold.times.size;
    PyObject *const result = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(size + closing));
    if (result != NULL && size)
        memcpy(PyBytes_AS_STRING(result), self->fold.times.data, size);
    if (result != NULL && closing)
        memcpy(PyBytes_AS_STRING(result) + size, entry, closing);
    return result;
}

static PyObject *
Fold_blocks(FoldObject *self, PyObject *Py_UNUSED(unused))
{
    if (!is_free(self))
        return NULL;
    return PyBytes_FromStringAndSize((const char *)self->fold.blocks.data, (Py_ssize_t)self->fold.blocks.size);
}

/* ---- events, handed out as eight numbers each ---- */

static int
by_offset(const void *one, const void *other)
{
    const struct event *const a = one, *const b = other;
    const int64_t first = a->base_offset != b->base_offset ? a->base_offset : a->last_offset;
    const int64_t second = a->base_offset != b->base_offset ? b->base_offset : b->last_offset;
    return (first > second) - (first < second);
}

/* Return the events in their order, then the ones held back by their offsets: numbers of 8 bytes. */
static PyObject *
Fold_packed_events(FoldObject *self, PyObject *Py_UNUSED(unused))
{
    if (!is_free(self))
        return NULL;
    const struct fold *const f = &self->fold;
    const struct event *const events = (const struct event *)(const void *)f->events.data;
    const size_t out = f->events.size / sizeof *events;
    size_t count = 0;
    struct event *const held = PyMem_Calloc(f->producers + 1, sizeof *held);
    if (held == NULL)
        return PyErr_NoMemory();
    for (size_t slot = 0; slot < f->slots; slot++)
        if (f->runs[slot].has_held)
            held[count++] = f->held[slot].event;
    qsort(held, count, sizeof *held, by_offset);
    PyObject *const made = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)((out + count) * EVENT_FIELDS * sizeof(int64_t)));
    int64_t *numbers = made == NULL ? NULL : (int64_t *)(void *)PyBytes_AS_STRING(made);
    for (size_t n = 0; made != NULL && n < out + count; n++, numbers += EVENT_FIELDS)
        spread_event(numbers, n < out ? &events[n] : &held[n - out]);
    PyMem_Free(held);
    return made;
}

/* Return the bytes of both indexes since the last call, the closing entry left out, and forget them. */
static PyObject *
Fold_take_indexes(FoldObject *self, PyObject *Py_UNUSED(unused))
{
    if (!is_free(self))
        return NULL;
    struct fold *const f = &self->fold;
    PyObject *const made = Py_BuildValue("y#y#", f->offsets.data ? (const char *)f->offsets.data : "",
                                         (Py_ssize_t)f->offsets.size, f->times.data ? (const char *)f->times.data : "",
                                         (Py_ssize_t)f->times.size);
    if (made != NULL) {
        f->offsets_taken += (int64_t)f->offsets.size;
        f->times_taken += (int64_t)f->times.size;
        f->offsets.size = f->times.size = 0;
    }
    return made;
}

static PyObject *
Fold_numbers(FoldObject *self, PyObject *Py_UNUSED(unused))
{
    if (!is_free(self))
        return NULL;
    const size_t size = fold_numbers(&self->fold) * sizeof(int64_t);
    int64_t *const numbers = PyMem_Malloc(size);
    if (numbers == NULL)
        return PyErr_NoMemory();
    fold_put(&self->fold, numbers);
    PyObject *const made = PyBytes_FromStringAndSize((const char *)numbers, (Py_ssize_t)size);
    PyMem_Free(numbers);
    return made;
}

/* Put bytes in front of what an index has. Returns 0, or -1 with an exception set. */
static int
put_back(struct buffer *buffer, int64_t *taken, const Py_buffer *bytes)
{
    if (*taken != bytes->len || buffer->size != 0) {
        PyErr_Format(PyExc_ValueError, "%zd bytes of an index of which %lld were taken", bytes->len,
                     (long long)*taken);
        return -1;
    }
    while (buffer->room < (size_t)bytes->len) {
        buffer->size = buffer->room;
        if (buffer_grow(buffer, 1) == NULL) {
            PyErr_NoMemory();
            return -1;
        }
    }
    if (bytes->len)
        memcpy(buffer->data, bytes->buf, (size_t)bytes->len);
    buffer->size = (size_t)bytes->len;
    *taken = 0;
    return 0;
}

static PyObject *
Fold_put_back(FoldObject *self, PyObject *args)
{
    Py_buffer offsets, times;
    if (!is_free(self) || !PyArg_ParseTuple(args, "y*y*", &offsets, &times))
        return NULL;
    const int failed = put_back(&self->fold.offsets, &self->fold.offsets_taken, &offsets) < 0
                       || put_back(&self->fold.times, &self->fold.times_taken, &times) < 0;
    PyBuffer_Release(&offsets);
    PyBuffer_Release(&times);
    if (failed)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *
Fold_load(FoldObject *self, PyObject *args)
{
    Py_buffer bytes;
    int done = 0;
    if (!is_free(self) || !PyArg_ParseTuple(args, "y*", &bytes))
        return NULL;
    if (self->fold.batches == 0 && bytes.len % (Py_ssize_t)sizeof(int64_t) == 0) {
        int64_t *const numbers = PyMem_Malloc((size_t)bytes.len + 1);
        done = -1;
        if (numbers != NULL) {
            memcpy(numbers, bytes.buf, (size_t)bytes.len);
            done = fold_get(&self->fold, numbers, (size_t)bytes.len / sizeof *numbers);
        }
        PyMem_Free(numbers);
    }
    PyBuffer_Release(&bytes);
    if (done > 0)
        Py_RETURN_NONE;
    return done < 0 ? PyErr_NoMemory() : PyErr_Format(PyExc_ValueError, "these are not the numbers of a fold");
}

static PyObject *
Fold_events_overflowed(FoldObject *self, PyObject *Py_UNUSED(unused))
{
    return PyBool_FromLong(self->fold.events_overflowed);
}

static PyMethodDef fold_methods[] = {
    {"add", (PyCFunction)Fold_add, METH_VARARGS, NULL},
    {"scan", (PyCFunction)Fold_scan, METH_VARARGS, NULL},
    {"scan_file", (PyCFunction)Fold_scan_file, METH_VARARGS, NULL},
    {"facts", (PyCFunction)Fold_facts, METH_NOARGS, NULL},
    {"epochs", (PyCFunction)Fold_epochs, METH_NOARGS, NULL},
    {"offset_index", (PyCFunction)Fold_offset_index, METH_NOARGS, NULL},
    {"time_index", (PyCFunction)Fold_time_index, METH_NOARGS, NULL},
    {"blocks", (PyCFunction)Fold_blocks, METH_NOARGS, NULL},
    {"packed_events", (PyCFunction)Fold_packed_events, METH_NOARGS, NULL},
    {"take_indexes", (PyCFunction)Fold_take_indexes, METH_NOARGS, NULL},
    {"put_back", (PyCFunction)Fold_put_back, METH_VARARGS, NULL},
    {"numbers", (PyCFunction)Fold_numbers, METH_NOARGS, NULL},
    {"load", (PyCFunction)Fold_load, METH_VARARGS, NULL},
    {"events_overflowed", (PyCFunction)Fold_events_overflowed, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot fold_slots[] = {
    {Py_tp_new, Fold_new},
    {Py_tp_dealloc, Fold_dealloc},
    {Py_tp_methods, fold_methods},
    {0, NULL},
};

static PyType_Spec fold_spec = {
    .name = "storage.kernel._scan.Fold",
    .basicsize = sizeof(FoldObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = fold_slots,
};

/* ---- the module ---- */

static PyMethodDef functions[] = {
    {"scan", module_scan, METH_VARARGS, NULL},
    {"walk", module_walk, METH_VARARGS, NULL},
    {"crc32c", module_crc32c, METH_VARARGS, NULL},
    {"crc32", module_crc32, METH_VARARGS, NULL},
    {"crc_name", module_crc_name, METH_NOARGS, NULL},
    {"choose_crc", module_choose_crc, METH_VARARGS, NULL},
    {"find", module_find, METH_VARARGS, NULL},
    {"check_records", module_check_records, METH_VARARGS, NULL},
    {"walk_records", module_walk_records, METH_VARARGS, NULL},
    {"find_record", module_find_record, METH_VARARGS, NULL},
    {"count_up_to", module_count_up_to, METH_VARARGS, NULL},
    {"lead", module_lead, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static int
module_exec(PyObject *module)
{
    static const char *const names[COLUMNS] = {COLUMN_NAMES};
    crc_init();
    PyObject *const columns = PyTuple_New(COLUMNS);
    if (columns == NULL)
        return -1;
    for (int n = 0; n < COLUMNS; n++) {
        PyObject *const name = PyUnicode_FromString(names[n]);
        if (name == NULL) {
            Py_DECREF(columns);
            return -1;
        }
        PyTuple_SET_ITEM(columns, n, name);
    }
    int result = PyModule_AddObjectRef(module, "COLUMNS", columns);
    Py_DECREF(columns);
    PyObject *const type = PyType_FromSpec(&fold_spec);
    if (type == NULL)
        return -1;
    result |= PyModule_AddObjectRef(module, "Fold", type);
    Py_DECREF(type);
    return result;
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, module_exec}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "storage.kernel._scan",
    .m_doc = "The scanner and the fold of a segment in C; see storage.kernel.scan and storage.kernel.fold.",
    .m_methods = functions,
    .m_slots = slots,
};

PyMODINIT_FUNC
PyInit__scan(void)
{
    return PyModuleDef_Init(&definition);
}
