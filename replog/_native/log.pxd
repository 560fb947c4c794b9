# The whole log of one partition.

from replog._native.aborted_transactions cimport AbortedTransactions
from replog._native.epoch_file cimport EpochFile
from replog._native.log_cut cimport LogCut
from replog._native.log_follower cimport LogFollower
from replog._native.log_lookup cimport LogLookup
from replog._native.log_producers cimport LogProducers
from replog._native.log_retention cimport LogRetention
from replog._native.log_start cimport LogStart
from replog._native.log_state cimport LogState
from replog._native.log_sync cimport LogSync
from replog._native.log_writer cimport LogWriter
from replog._native.retired_files cimport RetiredFiles
from replog._native.segment_maker cimport SegmentMaker

cdef class Log:
    cdef LogState state
    cdef RetiredFiles retired          # renamed, and to be unlinked
    cdef SegmentMaker maker
    cdef EpochFile epoch_file
    cdef LogProducers producers
    cdef AbortedTransactions aborted
    cdef LogLookup lookup
    cdef LogSync sync
    cdef LogStart start
    cdef LogCut cut
    cdef LogWriter writer
    cdef LogFollower follower
    cdef LogRetention retention

    cdef int finish(self) except -1
