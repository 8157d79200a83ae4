-- Which replicas disagree below the high watermark, from which offset on?
SELECT cluster, topic, partition, broker AS bad_on, array_join(good_brokers, ', ') AS good_on,
       disagree_first_offset AS first_offset, disagree_last_offset AS last_offset, comparable_until, verdict
FROM verdicts JOIN last_audit USING (audit_id) LATERAL VIEW explode(bad_brokers) AS broker
WHERE disagree_first_offset IS NOT NULL
ORDER BY cluster, topic, partition, broker
