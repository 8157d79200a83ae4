-- What does __cluster_metadata say should be there and is not, or is there and should not be?
SELECT kind, cluster, topic, partition, nullif(broker, '') AS broker, nullif(path, '') AS path, evidence
FROM findings JOIN last_audit USING (audit_id)
WHERE kind IN ('replica_missing', 'under_replicated', 'stray_replica', 'wrong_topic_id')
ORDER BY kind, cluster, topic, partition, broker
